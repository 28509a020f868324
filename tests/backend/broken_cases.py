"""Products of a row that holds NaN or infinity. Where the reference's sums aren't finite a backend's mustn't be: codes can't hold
what is no number, and a step that hides it ends with text that means nothing instead of ``NotFinite``."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pie_edge.backend import Backend
from tests.backend import cases, device_cases, expert_cases
from tests.backend.device import assert_close, run_case

_FEW = (
    *("f32", "f16", "bf16", "affine4g32-f16-min", "affine4g16-f32-z8", "affine8g32-f16-z128", "affine8g16-f32-min"),
    *("affine5g32-f16-z16", "affine6g16-f32-z32", str(cases.MXFP4)),
)
NAMES = (
    *(f"linear {encoding} {rows} rows" for encoding in _FEW for rows in (1, 2, 3, 7)),
    "linear 576 61 rows",
    "linear affine5g32-f16-z16 61 rows",
    "linear affine6g64-f16-min 61 rows",
    "expert_linear, one row",
    *(
        f"expert_linear {encoding}, {name}"
        for encoding in ("f16", "affine4g16-f16-z8", "affine6g16-f32-z32", str(cases.MXFP4))
        for name in ("rows past the true ones", "a prefill")
    ),
    "adapter_linear 70x16 7 rows",
)
"""A few of each kernel of products."""
CPU = tuple(name for name in NAMES if name in cases.ALL or name in expert_cases.ALL)
"""Those whose weights the cpu backend doesn't widen."""
_COLUMN = 5


def check(backend: Backend, name: str) -> None:
    """The first row is broken, and no other may come to harm."""
    for value in (np.nan, np.inf, -np.inf):
        case = device_cases.build(name)
        case.states["x"][0, _COLUMN] = value
        with np.errstate(invalid="ignore"):
            found = asyncio.run(run_case(backend, case))
            for output, expected in case.expected().items():
                assert not np.isfinite(expected).all()
                assert_close(_alike(found[output]), _alike(expected), case)


def _alike(values: NDArray[Any]) -> NDArray[Any]:
    """Of infinity times what may be nothing one gets either: which, is no matter."""
    return np.where(np.isfinite(values), values, np.float32(np.nan))
