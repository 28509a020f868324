"""What a backend's self-test says of a kernel: how far its result is from the stored one, and which variant it is."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pie_edge.program.ops import Op, Program


def fault(program: Program, op: Op, found: Sequence[float], expected: Sequence[float], tolerance: float) -> str:
    """Names the kernel, its variant and the worst error if that is more than ``tolerance`` of the largest value; else empty."""
    allowed = tolerance * max(map(abs, expected))
    # No number compares with anything: it is as wrong as can be.
    errors = [abs(a - b) if math.isfinite(a) else math.inf for a, b in zip(found, expected, strict=True)]
    if max(errors) <= allowed:
        return ""
    which = f"{op.kind!r}, {_variant(program, op)}"
    return f"kernel {which}, wrong: the worst error is {max(errors):.2g}, and {allowed:.2g} is allowed"


def _variant(program: Program, op: Op) -> str:
    """Which of a kind's kernels it is: the encoding of its weights, and what else it is specialised with."""
    encodings = [str(e) for name in op.inputs if (e := program.values[name].encoding) is not None]
    attributes = [f"{name} {value}" for name, value in op.attributes]
    return ", ".join([*encodings[:1], *attributes]) or "its only variant"
