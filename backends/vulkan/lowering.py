"""What lowering an op may look at: the Program, where its values lie, the device's variants, and the step's shape."""

from __future__ import annotations

from dataclasses import dataclass

from pie_edge.backends.shared.grid import Grid
from pie_edge.backends.shared.lowering import BaseLowering
from pie_edge.backends.shared.tuning import Tuning
from pie_edge.backends.vulkan.device import Facts
from pie_edge.backends.vulkan.launch import Access, Binding
from pie_edge.backends.vulkan.memory import Buffer, Region

_NO_COUNTER = 0xFFFFFFFF


@dataclass(frozen=True)
class Lowering(BaseLowering[Buffer, Tuning]):
    """Inputs are in ``place``, too."""

    facts: Facts

    @property
    def subgroups(self) -> str:
        """The end of the name of shaders that have a variant with subgroup operations."""
        return "_subgroups" if self.tuning.subgroups else ""

    def as_texels(self, *regions: Region) -> bool:
        """Whether kernels read these as texels: the device sees so much of a buffer, in words, the smallest of texels."""
        return self.tuning.texels and all(region.nbytes // 4 <= self.facts.texels for region in regions)

    def counter(self, name: str) -> tuple[Region | None, int]:
        """Where the number of a value's true rows is: a region and a word in it, if it is counted."""
        word = self.counter_word(name)
        return (None, _NO_COUNTER) if word is None else (self.place["counts"], word)

    def read(self, name: str) -> Binding:
        return Binding(self.place[name])

    def write(self, name: str) -> Binding:
        return Binding(self.place[name], Access.WRITE)

    def over(self, items: int, name: str) -> Grid:
        """An invocation for each of ``items`` in every true row of a value."""
        return -(-items // self.tuning.elementwise), self.rows_of(name), 1
