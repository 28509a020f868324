"""What lowering an op may look at: the Program, where its values lie, the device's variants, and the step's shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from pie_edge.backends.vulkan.device import Facts
from pie_edge.backends.vulkan.launch import Access, Binding, Count, Extent, Grid
from pie_edge.backends.vulkan.memory import Region
from pie_edge.backends.vulkan.tuning import Tuning
from pie_edge.backends.vulkan.weights import Weight
from pie_edge.program.ops import Program, Role

ACTIVATIONS = {"silu": 1, "gelu_tanh": 2, "gelu": 3, "relu": 4, "sigmoid": 5}
"""As ``shaders/glsl/activations.glsl`` numbers them."""

_HEADER = ("rows", "sequences", "sampled", "entries")
_NO_COUNTER = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class StepShape:
    """What of a step decides which kernels are recorded for it; its exact counts are in its block."""

    rows: int
    """Tokens that an invocation of ``linear`` computes."""
    sampled: int
    """The same for the rows that are read out."""
    singles: bool
    """Some sequence has one row: a decode."""
    several: bool
    """Some sequence has more."""
    splits: bool
    """Some sequence is longer than a split."""


@dataclass(frozen=True)
class Lowering:
    """One Program's lowering. ``place`` has states, inputs, temporaries and outputs; weights are by themselves."""

    program: Program
    place: Mapping[str, Region]
    weights: Mapping[str, Weight]
    scratch: Region | None
    """For what an op's launches leave each other: ``lower_attention.scratch_bytes``, ``lower.copy_scratch_bytes``."""
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
        """Values whose true rows are counted, and by which count."""
        if "token_src" not in self.program.values:
            return {}
        rows = self.capacity("token_src")
        # A state that an op takes as its operand has the step's rows if it has as many.
        found = {v.name: "rows" for v in self.program.by_role(Role.STATE) if v.shape[0] == rows}
        found |= dict.fromkeys(("token_src", "positions", "row_index", "write_slots"), "rows")
        found["sample_rows"] = "sampled"
        for op in self.program.ops:
            source = op.inputs[1] if op.kind in ("embed", "gather_rows") else op.inputs[0]
            if source in found and op.kind != "attention_mass":
                found |= dict.fromkeys(op.outputs, found[source])
        return found

    def rows_of(self, name: str) -> Extent:
        """How many rows of a value are true."""
        count = self._counted.get(name)
        return self.capacity(name) if count is None else Count(count)

    def counter(self, name: str) -> tuple[Region | None, int]:
        """Where the number of a value's true rows is: a region and a word in it, if it is counted."""
        count = self._counted.get(name)
        return (None, _NO_COUNTER) if count is None else (self.place["counts"], _HEADER.index(count))

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
