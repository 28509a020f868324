"""What the planner makes of an epilogue: kernels to be written in some language, calls of a backend's own, and where values lie.

Passes run in *rounds* of at most ``slots`` passes. Temporaries lie in one *arena* of u32 words and are kept for one round,
``[slots, *shape]``; outputs lie in a block of their own, ``[passes, *shape]``. A bool takes a word; outputs that are bools
are packed to bytes after the last round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from pie_edge.program.node_types import Element
from pie_edge.program.ops import Op
from pie_edge.sampling.dialects.scalar import Memory, Scalar


class Combine(StrEnum):
    """How a reduction's elements come together. ``argmax`` and ``argmin`` give an index, of equal elements the lowest."""

    MAX = "max"
    MIN = "min"
    SUM = "sum"
    ARGMAX = "argmax"
    ARGMIN = "argmin"

    @property
    def of_index(self) -> bool:
        return self in (Combine.ARGMAX, Combine.ARGMIN)


@dataclass(frozen=True, slots=True)
class Reduction:
    """One value a row. Elements for which ``condition`` doesn't hold are left out; one is None if all count.

    ``argmax`` and ``argmin`` of nothing are 0. ``number`` is what ``Builder.reduced`` was given.
    """

    number: int
    combine: Combine
    value: Scalar
    condition: Scalar | None = None

    @property
    def element(self) -> Element:
        """Of the values that are compared or summed."""
        return self.value.element

    @property
    def result(self) -> Element:
        return Element.U32 if self.combine.of_index else self.element


@dataclass(frozen=True, slots=True)
class Store:
    """``value`` goes to word ``offset`` of a memory."""

    memory: Memory
    offset: Scalar
    value: Scalar


@dataclass(frozen=True, slots=True)
class Loop:
    """Over the ``extent`` elements of a row: an element for each invocation in turn."""

    extent: int
    reductions: tuple[Reduction, ...]
    stores: tuple[Store, ...]


@dataclass(frozen=True, slots=True)
class Kernel:
    """Loops one after the other over the same row, then ``stores`` once a row.

    ``rows`` is how many rows a pass has. With reductions a workgroup does a row; without, a row's elements may be spread
    over workgroups.
    """

    rows: int
    loops: tuple[Loop, ...]
    stores: tuple[Store, ...]

    @property
    def reduces(self) -> bool:
        return any(loop.reductions for loop in self.loops)

    @property
    def extent(self) -> int:
        return max((loop.extent for loop in self.loops), default=1)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value lies: pass number n's entries begin at word ``start + n * size``, counted from where ``memory`` begins
    or, for an output, from where that output begins.

    ``whole`` says that n counts from the call's first pass and not from the round's.
    """

    name: str
    memory: Memory
    start: int
    size: int
    whole: bool


@dataclass(frozen=True, slots=True)
class Call:
    """A node that is an algorithm of its own: its operands lie in the arena or the outputs, ``scratch`` is room for it."""

    op: Op
    operands: tuple[Place, ...]
    results: tuple[Place, ...]
    shapes: tuple[tuple[int, ...], ...]
    """Of the operands and then the results, in one pass."""
    elements: tuple[Element, ...]
    """Likewise."""
    scratch: Place


@dataclass(frozen=True, slots=True)
class Packing:
    """An output of bools: ``entries`` words from ``start`` of the arena become its bytes."""

    name: str
    start: int
    entries: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps run in order, once for each round, with everything that a step wrote visible to the next; then the packing."""

    passes: int
    slots: int
    steps: tuple[Kernel | Call, ...]
    packings: tuple[Packing, ...]
    words: int
    """Of the arena."""
    starts: Mapping[str, int]
    """What ``Builder.start`` stands for, of values in the arena. Inputs and outputs begin where the backend puts them."""

    @property
    def rounds(self) -> range:
        """The first pass of each round."""
        return range(0, self.passes, self.slots)
