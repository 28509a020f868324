"""What lowering an op may look at, whatever the API: the Program, where its values lie, the variants, and the step's shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Generic, Protocol, Self, TypeVar

from pie_edge.backends.shared.grid import Count, Extent
from pie_edge.backends.shared.region import B, Region
from pie_edge.backends.shared.shapes import HEADER, StepShape, counted_rows
from pie_edge.backends.shared.weights import Vector, Weight
from pie_edge.program.ops import Program


class Variants(Protocol):
    """What an API chooses its kernels by; it has more."""

    def tokens(self, rows: int) -> int:
        """Tokens that a piece of ``linear`` computes in a step of this many rows."""


VariantsT = TypeVar("VariantsT", bound=Variants)


@dataclass(frozen=True)
class BaseLowering(Generic[B, VariantsT]):
    """One Program's lowering. ``place`` has states, temporaries and outputs; weights are by themselves."""

    program: Program
    place: Mapping[str, Region[B]]
    weights: Mapping[str, Weight]
    scratch: Region[B] | None
    """For what an op's launches leave each other."""
    tuning: VariantsT
    shape: StepShape
    constant: Callable[[bytes], Region[B]]
    """A region that holds these bytes."""

    def shaped(self, shape: StepShape) -> Self:
        return replace(self, shape=shape)

    @cached_property
    def _counted(self) -> dict[str, str]:
        return counted_rows(self.program)

    def rows_of(self, name: str) -> Extent:
        """How many rows of a value are true."""
        count = self._counted.get(name)
        return self.capacity(name) if count is None else Count(count)

    def counter_word(self, name: str) -> int | None:
        """The word of the step's header that has the number of a value's true rows, if it is counted."""
        count = self._counted.get(name)
        return None if count is None else HEADER.index(count)

    def tokens_of(self, name: str) -> int:
        """Tokens that an invocation of ``linear`` computes of this value."""
        count = self._counted.get(name)
        if count is None:
            return self.tuning.tokens(self.capacity(name))
        return self.shape.sampled if count == "sampled" else self.shape.rows

    def capacity(self, name: str) -> int:
        return self.program.values[name].shape[0]

    def width(self, name: str) -> int:
        return self.program.values[name].shape[-1]

    def vector(self, name: str) -> Vector:
        """A weight of one axis."""
        vector = self.weights[name]
        assert isinstance(vector, Vector)
        return vector

    @property
    def room(self) -> Region[B]:
        """The scratch of an op that has some."""
        assert self.scratch is not None
        return self.scratch
