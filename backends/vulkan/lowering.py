"""What lowering an op may look at: the Program, where its values lie, the device's variants, and the step's shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from pie_edge.backends.shared.grid import Count, Extent, Grid
from pie_edge.backends.shared.shapes import HEADER, StepShape, counted_rows
from pie_edge.backends.shared.tuning import Tuning
from pie_edge.backends.shared.weights import Weight
from pie_edge.backends.vulkan.device import Facts
from pie_edge.backends.vulkan.launch import Access, Binding
from pie_edge.backends.vulkan.memory import Region
from pie_edge.program.ops import Program

ACTIVATIONS = {"silu": 1, "gelu_tanh": 2, "gelu": 3, "relu": 4, "sigmoid": 5}
"""As ``shaders/glsl/activations.glsl`` numbers them."""

_NO_COUNTER = 0xFFFFFFFF


@dataclass(frozen=True)
class Lowering:
    """One Program's lowering. ``place`` has states, inputs, temporaries and outputs; weights are by themselves."""

    program: Program
    place: Mapping[str, Region]
    weights: Mapping[str, Weight]
    scratch: Region | None
    """For what an op's launches leave each other."""
    tuning: Tuning
    facts: Facts
    shape: StepShape
    constant: Callable[[bytes], Region]
    """A region that holds these bytes."""

    def shaped(self, shape: StepShape) -> Lowering:
        return replace(self, shape=shape)

    @property
    def subgroups(self) -> str:
        """The end of the name of shaders that have a variant with subgroup operations."""
        return "_subgroups" if self.tuning.subgroups else ""

    def as_texels(self, *regions: Region) -> bool:
        """Whether kernels read these as texels: the device sees so much of a buffer, in words, the smallest of texels."""
        return self.tuning.texels and all(region.nbytes // 4 <= self.facts.texels for region in regions)

    @cached_property
    def _counted(self) -> dict[str, str]:
        return counted_rows(self.program)

    def rows_of(self, name: str) -> Extent:
        """How many rows of a value are true."""
        count = self._counted.get(name)
        return self.capacity(name) if count is None else Count(count)

    def counter(self, name: str) -> tuple[Region | None, int]:
        """Where the number of a value's true rows is: a region and a word in it, if it is counted."""
        count = self._counted.get(name)
        return (None, _NO_COUNTER) if count is None else (self.place["counts"], HEADER.index(count))

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

    def read(self, name: str) -> Binding:
        return Binding(self.place[name])

    def write(self, name: str) -> Binding:
        return Binding(self.place[name], Access.WRITE)

    def over(self, items: int, name: str) -> Grid:
        """An invocation for each of ``items`` in every true row of a value."""
        return -(-items // self.tuning.elementwise), self.rows_of(name), 1
