"""What reductions of epilogues have in common, whatever they are written in."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from pie_edge.program.node_types import Element
from pie_edge.sampling.dialects.kernel import Combine, Reduction
from pie_edge.sampling.dialects.scalar import F32, I32, U32

FEW = 32
"""Lanes whose partial values come together at once."""
COLUMNS = 16
"""Those of more come together in two steps: each of this many lanes takes a column, then all take what those have."""
_NEVER: Mapping[tuple[str, Element], float] = {
    ("max", F32): -inf,
    ("max", I32): -(2**31),
    ("max", U32): 0,
    ("min", F32): inf,
    ("min", I32): 2**31 - 1,
    ("min", U32): 2**32 - 1,
}


def never(reduction: Reduction) -> float:
    """What any element beats, or adds nothing."""
    return _NEVER.get((reduction.combine.value.removeprefix("arg"), reduction.element), 0)


def comparison(reduction: Reduction) -> str:
    """The node by which an element is better than another."""
    return "gt" if reduction.combine in (Combine.MAX, Combine.ARGMAX) else "lt"


def keeps_loss(reduction: Reduction) -> bool:
    """A sum of floats keeps what it rounds away."""
    return reduction.combine is Combine.SUM and reduction.element is F32
