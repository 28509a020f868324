"""What lowering an op may look at: the Program, where its values lie, the device's variants, and the step's shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from pie_edge.backends.shared.grid import Count, Extent, Grid
from pie_edge.backends.shared.shapes import HEADER, StepShape, counted_rows
from pie_edge.backends.shared.tuning import Tuning
from pie_edge.backends.shared.weights import Weight
from pie_edge.backends.wgpu.memory import Region
from pie_edge.backends.wgpu.plan import MOST_GROUPS
from pie_edge.program.ops import Program


@dataclass(frozen=True)
class Lowering:
    """One Program's lowering. ``place`` has states, temporaries and outputs; inputs lie in ``step``, weights by themselves."""

    program: Program
    place: Mapping[str, Region]
    step: Region
    words: Mapping[str, int]
    """The word of ``step`` that each input begins with."""
    weights: Mapping[str, Weight]
    scratch: Region | None
    """For what an op's launches leave each other."""
    tuning: Tuning
    max_binding: int
    shape: StepShape
    constant: Callable[[bytes], Region]
    """A region that holds these bytes."""

    def shaped(self, shape: StepShape) -> Lowering:
        return replace(self, shape=shape)

    @cached_property
    def _counted(self) -> dict[str, str]:
        return counted_rows(self.program)

    def rows_of(self, name: str) -> Extent:
        """How many rows of a value are true."""
        count = self._counted.get(name)
        return self.capacity(name) if count is None else Count(count)

    def counter(self, name: str) -> int | None:
        """The word of the step's header that has the number of a value's true rows, if it is counted."""
        count = self._counted.get(name)
        return None if count is None else HEADER.index(count)

    @property
    def header(self) -> Region:
        return self.step.part(0, 16)

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

    def over(self, items: int, rows: Extent) -> Grid:
        """An invocation for each of ``items`` in every row; what exceeds a dimension goes along z."""
        groups = -(-items // self.tuning.elementwise)
        return min(groups, MOST_GROUPS), rows, -(-groups // MOST_GROUPS)
