"""What lowering an op may look at: the Program, where its values lie, the device's variants, and the step's shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from pie_edge.backends.cuda.launch import Field, Kernel, Launch, arguments
from pie_edge.backends.cuda.memory import Region
from pie_edge.backends.cuda.tuning import Tuning
from pie_edge.backends.shared.grid import Count, Extent
from pie_edge.backends.shared.shapes import HEADER, StepShape, counted_rows
from pie_edge.backends.shared.weights import Matrix, Vector, Weight
from pie_edge.program.ops import Program

ACTIVATIONS = {"none": 0, "silu": 1, "gelu_tanh": 2, "gelu": 3, "relu": 4, "sigmoid": 5}
"""As ``kernels/common.cuh`` numbers them."""
BLOCK = 256
"""Threads of a block of an elementwise kernel."""


@dataclass(frozen=True)
class Lowering:
    """One Program's lowering. ``place`` has states, inputs, temporaries and outputs; weights are by themselves."""

    program: Program
    place: Mapping[str, Region]
    weights: Mapping[str, Weight]
    scratch: Region | None
    """For what an op's launches leave each other."""
    tuning: Tuning
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

    def counter(self, name: str) -> Region | None:
        """Where the number of a value's true rows is, if it is counted."""
        count = self._counted.get(name)
        return None if count is None else self.place["counts"].part(4 * HEADER.index(count), 4)

    def tokens_of(self, name: str) -> int:
        """Rows of this value that a block of ``linear`` takes."""
        count = self._counted.get(name)
        if count is None:
            return self.tuning.tokens(self.capacity(name))
        return self.shape.sampled if count == "sampled" else self.shape.rows

    def capacity(self, name: str) -> int:
        return self.program.values[name].shape[0]

    def width(self, name: str) -> int:
        return self.program.values[name].shape[-1]

    def at(self, *names: str) -> tuple[Region, ...]:
        return tuple(self.place[name] for name in names)

    def matrix(self, name: str) -> Matrix:
        weight = self.weights[name]
        assert isinstance(weight, Matrix)
        return weight

    def vector(self, name: str) -> Region:
        return self.values_of(name).region

    def values_of(self, name: str) -> Vector:
        weight = self.weights[name]
        assert isinstance(weight, Vector)
        return weight

    def by_row(self, file: str, name: str, rows: str, items: int, *given: Field | bytes) -> list[Launch]:
        """A thread for each of ``items`` in every true row of a value; the kernel's last argument is their number."""
        grid = (-(-items // BLOCK), self.rows_of(rows), 1)
        return [Launch(Kernel(file, name), arguments(*given, self.counter(rows)), grid, BLOCK)]
