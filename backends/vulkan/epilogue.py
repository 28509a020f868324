"""Epilogues on Vulkan: a traced epilogue's Program as launches, with no compiler at run time.

The SPIR-V of the planner's fused kernels is assembled here; nodes that are algorithms of their own are prebuilt kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pie_edge.backends.shared import epilogue_algorithms as algorithms
from pie_edge.backends.shared.epilogue import LOCAL, BaseEpilogue, PlacedSite, Places
from pie_edge.backends.shared.words import words
from pie_edge.backends.vulkan.device import Facts
from pie_edge.backends.vulkan.epilogue_expressions import MEMORIES, WRITABLE
from pie_edge.backends.vulkan.epilogue_kernels import assemble
from pie_edge.backends.vulkan.launch import Access, Binding, Kernel, Launch, Module
from pie_edge.backends.vulkan.memory import Buffer, Region
from pie_edge.backends.vulkan.shaders import shader
from pie_edge.program.ops import Program
from pie_edge.sampling.dialects import kernel as plans
from pie_edge.sampling.dialects.planner import ROUND_BYTES
from pie_edge.sampling.dialects.scalar import Memory


@dataclass(frozen=True)
class VulkanSite(PlacedSite[Buffer, Launch]):
    def launch(self, run: algorithms.Run) -> Launch:
        bindings = (
            Binding(self.places.regions["counts"]),
            *(Binding(self.memories[place.memory]) for place in run.operands),
            *(Binding(self.memories[place.memory], Access.BOTH) for place in run.results),
        )
        prefix = self.first, self.slots, run.rows
        grid = self.grid(run)
        return Launch(Kernel(shader(f"nodes_{run.name}"), run.constants), bindings, grid, words(*prefix, *run.push))


class Epilogue(BaseEpilogue[Buffer, Kernel, Launch]):
    site = VulkanSite

    def __init__(self, program: Program, facts: Facts, presets: bool = True, round_bytes: int = ROUND_BYTES) -> None:
        super().__init__(program, facts, presets, round_bytes)
        self._preserve = facts.preserves_special

    def _kernel(self, name: str, kernel: plans.Kernel, starts: Mapping[str, int], lanes: int) -> Kernel:
        return Kernel(Module(name, assemble(kernel, starts, self._plan.slots, lanes, self._preserve)))

    def _fused(
        self, made: Kernel, kernel: plans.Kernel, site: VulkanSite, grid: tuple[int, int, int], lanes: int
    ) -> Launch:
        bindings = tuple(
            Binding(site.memories[memory], Access.BOTH if memory in WRITABLE else Access.READ) for memory in MEMORIES
        )
        return Launch(made, bindings, grid, words(site.first))

    def _pooled(
        self, name: str, names: tuple[str, str, str], each: int, places: Places[Buffer], grid: tuple[int, int, int]
    ) -> Launch:
        counts, value, slots, tokens = (places.regions[one] for one in ("counts", *names))
        if name == "take_kept":
            bindings = Binding(counts), Binding(slots), Binding(tokens), Binding(value, Access.BOTH)
        else:
            bindings = Binding(counts), Binding(value), Binding(slots), Binding(tokens, Access.WRITE)
        push = words(self._whole.values[names[2]].size, each)
        return Launch(Kernel(shader(f"nodes_{name}"), (LOCAL,)), bindings, grid, push)

    def _packed(
        self, packing: plans.Packing, memories: Mapping[Memory, Region], start: int, grid: tuple[int, int, int]
    ) -> Launch:
        bindings = Binding(memories[Memory.ARENA]), Binding(memories[Memory.OUTPUTS], Access.BOTH)
        push = words(packing.start, start, packing.entries)
        return Launch(Kernel(shader("nodes_pack_bytes"), (LOCAL,)), bindings, grid, push)
