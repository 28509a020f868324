"""Epilogues on CUDA: a traced epilogue's Program as launches. The planner's fused kernels are written as CUDA C++."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pie_edge.backends.cuda.device import Facts
from pie_edge.backends.cuda.epilogue_kernels import kernel_text
from pie_edge.backends.cuda.launch import Kernel, Launch, arguments, packed
from pie_edge.backends.cuda.memory import Buffer, Region
from pie_edge.backends.shared import epilogue_algorithms as algorithms
from pie_edge.backends.shared.epilogue import LOCAL, BaseEpilogue, PlacedSite, Places
from pie_edge.program.ops import Program
from pie_edge.sampling.dialects import kernel as plans
from pie_edge.sampling.dialects.planner import ROUND_BYTES
from pie_edge.sampling.dialects.scalar import Memory

_MACROS: Mapping[str, tuple[str, ...]] = {
    "kth_largest": ("LOCAL", "COPIES"),
    "nucleus": ("LOCAL", "COPIES"),
    "top_k": ("LOCAL", "COPIES", "TYPE", "K"),
    "sort": ("LOCAL", "TYPE", "BITS", "FALLING", "IS_FIRST", "IS_LAST"),
    "cumsum": ("LOCAL", "IS_FLOAT"),
    "scatter": ("LOCAL", "TYPE", "MODE", "IS_FIRST"),
    "pack_bits": ("LOCAL",),
    "sample": ("LOCAL", "COPIES", "MASK", "TEMPERED", "STAGE_1", "STAGE_2", "STAGE_3", "STAGE_4", "ALIGNED"),
}
"""The constants of each node's kernel, in the order in which ``shared/epilogue_algorithms.py`` gives them."""


@dataclass(frozen=True)
class Card:
    """What decides how many threads share a row: a card's own, also where the driver's stand-in runs its kernels."""

    name: str
    shared_memory: int
    max_invocations: int
    software: bool = False


@dataclass(frozen=True)
class CudaSite(PlacedSite[Buffer, Launch]):
    def launch(self, run: algorithms.Run) -> Launch:
        macros = tuple(f"{macro}={int(value)}" for macro, value in zip(_MACROS[run.name], run.constants, strict=True))
        site = packed(self.places.regions["counts"], self.first, self.slots, run.rows)
        given = [self.memories[place.memory] for place in (*run.operands, *run.results)]
        more = (self.starts["list"], self.starts["out0"]) if run.name == "sample" else ()
        told = arguments(site, packed(*run.push, *more), *given)
        grid = self.grid(run)
        return Launch(Kernel(f"nodes_{run.name}.cu", run.name, macros), told, grid, int(run.constants[0]))


class Epilogue(BaseEpilogue[Buffer, Kernel, Launch]):
    site = CudaSite

    def __init__(self, program: Program, facts: Facts, presets: bool = True, round_bytes: int = ROUND_BYTES) -> None:
        card = Card(facts.name, facts.shared_memory, facts.max_invocations)
        super().__init__(program, card, presets, round_bytes)

    def _kernel(self, name: str, kernel: plans.Kernel, starts: Mapping[str, int], lanes: int) -> Kernel:
        return Kernel(f"{name}.cu", "fused", (), kernel_text(kernel, starts, lanes))

    def _fused(
        self, made: Kernel, kernel: plans.Kernel, site: CudaSite, grid: tuple[int, int, int], lanes: int
    ) -> Launch:
        told = packed(site.places.regions["counts"], site.first, site.slots, kernel.rows)
        return Launch(made, arguments(told, *(site.memories[memory] for memory in Memory)), grid, lanes)

    def _pooled(
        self, name: str, names: tuple[str, str, str], each: int, places: Places[Buffer], grid: tuple[int, int, int]
    ) -> Launch:
        room = self._whole.values[names[2]].size
        told = arguments(*(places.regions[one] for one in names), room, each, places.regions["counts"])
        return Launch(Kernel("nodes_pool.cu", name), told, grid, LOCAL)

    def _packed(
        self, packing: plans.Packing, memories: Mapping[Memory, Region], start: int, grid: tuple[int, int, int]
    ) -> Launch:
        x = memories[Memory.ARENA].part(4 * packing.start, 4 * packing.entries)
        told = arguments(x, memories[Memory.OUTPUTS].part(4 * start, packing.entries), packing.entries)
        return Launch(Kernel("nodes_pool.cu", "pack_bytes"), told, grid, LOCAL)
