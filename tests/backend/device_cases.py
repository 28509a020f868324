"""Op cases of every backend whose kernels run on a device: those of ``cases.py`` and its companions, attention over keys and
values in half precision, and observed attention."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pie_edge.backend import Backend
from pie_edge.program.encodings import DType
from pie_edge.program.observe import MASSES
from pie_edge.program.ops import Value
from pie_edge.program.trace import Trace
from tests.backend import append_cases, cases, expert_cases, mass_cases, recurrent_cases
from tests.backend.cases import Case
from tests.backend.device import assert_close, run_case
from tests.backend.mass_cases import MassCase

Array = NDArray[Any]
HALVES = "halves "
"""How the names of cases with keys and values in half precision begin."""
OBSERVED = "observed "
"""How the names of cases with observed attention begin; those of halves stand before it."""


class HalvesCase(Case):
    """An attention case whose cache is float16: its vectors are eight values long. New keys and values have no more bits
    than a half, so that nothing is rounded."""

    def state(self, name: str, values: Array) -> Value:
        if name not in ("k", "v"):
            return super().state(name, values)
        if name == "k":  # [pages, heads, D/4, slots, 4] → [pages, heads, D/8, slots, 8]
            pages, heads, fours, slots, _ = values.shape
            by_eight = values.reshape(pages, heads, fours // 2, 2, slots, 4).transpose(0, 1, 2, 4, 3, 5)
            values = by_eight.reshape(pages, heads, fours // 2, slots, 8)
        self.states[name] = values.astype(np.float16)
        return self.trace.state(name, DType.F16, values.shape)

    def row_state(self, name: str, values: Array) -> Value:
        whole = values.astype(np.float16).astype(np.float32) if name.startswith("new_") else values
        return super().row_state(name, whole)


class HalvesMassCase(HalvesCase, MassCase): ...


_HALVES = tuple(name for name in mass_cases.NAMES if name != "attention width 20")
NAMES: tuple[str, ...] = (
    *cases.ALL,
    *cases.ODD,
    *expert_cases.ALL,
    *expert_cases.ODD,
    *recurrent_cases.ALL,
    *append_cases.ALL,
    *(HALVES + name for name in _HALVES),
    *(OBSERVED + name for name in mass_cases.NAMES),
    *(HALVES + OBSERVED + name for name in _HALVES),
)
AWKWARD = (
    "linear affine4g32-f16-min 1 rows",
    "linear affine4g32-f16-min 7 rows",
    "linear affine4g16-f32-z8 3 rows",
    "linear affine8g16-f16-z128 2 rows",
    "linear affine4g64-f16-min 7 rows",
    "linear affine5g32-f16-z16 1 rows",
    "linear affine5g16-f32-min 7 rows",
    "linear affine6g16-f32-z32 2 rows",
    "linear affine6g64-f16-min 61 rows",
    "embed affine6g16-f32-z32",
    f"linear {cases.MXFP4} 7 rows",
    f"expert_linear {cases.MXFP4}, rows past the true ones",
    "linear bf16 7 rows",
    "linear f16 1 rows",
    "linear 576 61 rows",
    "linear of 48 columns",
    "linear of a vocabulary",
    "embed affine4g32-f16-min",
    "embed affine8g16-f32-z128",
    "rms_norm 576x1 1 rows",
    "rms_norm 7x3 8 rows",
    "add_rms_norm 10 7 rows",
    "layer_norm 13 7 rows",
    "activation gelu 13 7 rows",
    "rope neox",
    "rope interleaved in part",
    "gelu 13 7 rows",
    "gelu_tanh 1536 1 rows",
    "softcap 13 7 rows",
    "gather_rows",
    "route 8 of 128 11 rows",
    "expert_linear, one row",
    "expert_linear, experts without rows",
    "expert_linear, some of seven",
    "expert_linear affine6g16-f32-z32, a prefill",
    "expert_linear bf16, rows past the true ones",
    "a mixture of experts",
    "clamped_glu 13",
    "store of a linear",
    "attention batch",
    "attention holes",
    "attention window",
    "attention masked",
    "attention width 96",
    "attention sinks, masked, window",
    HALVES + "attention sinks",
    "short_conv",
    "short_conv of three",
    "short_conv bf16",
    "gated_delta",
    "gated_delta tiled",
    "gated_delta odd",
    "gated_delta many rows",
    "mul by row 13 7 rows",
    HALVES + "attention masked, window",
    HALVES + "attention batch",
    HALVES + "attention long decode",
    HALVES + "attention softcap",
    OBSERVED + "attention masked, window",
    OBSERVED + "attention page 32",
    HALVES + OBSERVED + "attention batch",
    HALVES + OBSERVED + "attention softcap",
    HALVES + OBSERVED + "attention sinks, masked, window",
)
"""A few of each kind: enough to find a kernel that a setting breaks."""


def build(name: str) -> Case:
    halves, plain = name.startswith(HALVES), name.removeprefix(HALVES)
    observed, plain = plain.startswith(OBSERVED), plain.removeprefix(OBSERVED)
    kind = (HalvesMassCase if halves else MassCase) if observed else (HalvesCase if halves else Case)
    case = kind(Trace(name), np.random.default_rng(sum(plain.encode())))
    every = (
        cases.ALL
        | cases.ODD
        | expert_cases.ALL
        | expert_cases.ODD
        | recurrent_cases.ALL
        | append_cases.ALL
        | append_cases.ODD
    )
    every[plain](case)
    if isinstance(case, MassCase):
        case.add_layer()
    if halves:
        case.written = ("key_positions",)
    return case


def check(backend: Backend, name: str) -> None:
    """A case against the reference."""
    case = build(name)
    found = asyncio.run(run_case(backend, case))
    for output, expected in case.expected().items():
        width = expected.shape[-1] if output == MASSES else None
        assert_close(found[output][..., :width], expected, case)
