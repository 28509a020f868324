"""Epilogues on CUDA: a traced epilogue's Program as launches. See ``docs/decisions/007-epilogue-lowering.md``.

The planner's fused kernels are written as CUDA C++ when an epilogue is first used; nodes that are algorithms of their own have
kernels by hand (``kernels/nodes_*.cu``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from pie_edge.backends.cuda.device import Facts
from pie_edge.backends.cuda.epilogue_kernels import kernel_text
from pie_edge.backends.cuda.launch import Kernel, Launch, arguments, packed
from pie_edge.backends.cuda.memory import Region
from pie_edge.backends.shared import epilogue_algorithms as algorithms
from pie_edge.backends.shared.epilogue_plan import prepare
from pie_edge.program.ops import Op, Program, Role
from pie_edge.sampling.dialects import kernel as plans
from pie_edge.sampling.dialects.planner import ROUND_BYTES
from pie_edge.sampling.dialects.scalar import Memory

_ELEMENTS_A_THREAD = 4
_THREADS = 64
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
class Places:
    """Where an epilogue's values lie: states by name, inputs and outputs as words of a block each."""

    states: Mapping[str, Region]
    inbox: Region
    inputs: Mapping[str, int]
    outbox: Region
    outputs: Mapping[str, int]
    arena: Region

    def input(self, name: str) -> Region:
        return self.inbox.part(4 * self.inputs[name], self.inbox.nbytes - 4 * self.inputs[name])


@dataclass(frozen=True)
class CudaSite(algorithms.Site[Launch]):
    memories: Mapping[Memory, Region]
    counts: Region

    def launch(
        self,
        name: str,
        operands: tuple[plans.Place, ...],
        results: tuple[plans.Place, ...],
        rows: int,
        constants: tuple[int | bool, ...],
        push: tuple[int | float, ...],
        columns: int = 1,
    ) -> Launch:
        macros = tuple(f"{macro}={int(value)}" for macro, value in zip(_MACROS[name], constants, strict=True))
        site = packed(self.counts, self.first, self.slots, rows)
        given = [self.memories[place.memory] for place in (*operands, *results)]
        more = (self.starts["list"], self.starts["out0"]) if name == "sample" else ()
        told = arguments(site, packed(*push, *more), *given)
        grid = algorithms.grid_of(self.slots * rows, columns)
        return Launch(Kernel(f"nodes_{name}.cu", name, macros), told, grid, int(constants[0]))


class Epilogue:
    """An epilogue's Program made ready for a device.

    ``arena_bytes`` of device memory are needed beside the Program's state, inputs and outputs; its temporaries have no
    places of their own. Passes run in rounds whose temporaries take at most ``round_bytes``. With ``presets`` off nothing is
    looked up: every epilogue goes through the planner.
    """

    def __init__(self, program: Program, facts: Facts, presets: bool = True, round_bytes: int = ROUND_BYTES) -> None:
        self._whole = program
        self._card = Card(facts.name, facts.shared_memory, facts.max_invocations)
        self._prepared = made = prepare(program, presets, round_bytes)
        self._program, self._sampler, self._plan = made.program, made.sampler, made.plan

    @property
    def arena_bytes(self) -> int:
        return max(4 * self._plan.words, 16)

    def launches(self, places: Places) -> list[Launch]:
        """In order."""
        memories = {
            Memory.LOGITS: places.states[self._program.by_role(Role.STATE)[0].name],
            Memory.INPUTS: places.inbox,
            Memory.ARENA: places.arena,
            Memory.OUTPUTS: places.outbox,
        }
        given = {name: places.inputs[where] for name, where in self._prepared.given.items()}
        starts = {**given, **places.outputs, **self._plan.starts}
        kernels = [self._kernel(number, step, starts) for number, step in enumerate(self._plan.steps)]
        found = [self._through_pool("take_kept", op, places) for op in self._prepared.takes]
        for first in self._plan.rounds:
            site = CudaSite(self._card, starts, first, self._plan.slots, memories, places.input("counts"))
            if self._sampler:
                found += self._sampler.launches(site)
            for step, made in zip(self._plan.steps, kernels, strict=True):
                if isinstance(step, plans.Kernel):
                    assert made is not None
                    found.append(self._fused(made, step, site))
                else:
                    found += algorithms.launches(site, step)
        found += [self._packed(packing, places) for packing in self._plan.packings]
        return [*found, *(self._through_pool("keep_token", op, places) for op in self._prepared.keeps)]

    def _kernel(self, number: int, step: plans.Kernel | plans.Call, starts: Mapping[str, int]) -> Kernel | None:
        if isinstance(step, plans.Call):
            return None
        text = kernel_text(step, starts, self._threads(step))
        return Kernel(f"{self._program.name}-{number}.cu", "fused", (), text)

    def _threads(self, kernel: plans.Kernel) -> int:
        if not kernel.reduces:
            return _THREADS
        return algorithms.lanes(self._card, kernel.extent, sum(loop.extent for loop in kernel.loops))

    def _fused(self, made: Kernel, kernel: plans.Kernel, site: CudaSite) -> Launch:
        threads = self._threads(kernel)
        columns = 1 if kernel.reduces else -(-kernel.extent // (threads * _ELEMENTS_A_THREAD))
        grid = algorithms.grid_of(site.slots * kernel.rows, min(columns, 1024))
        told = packed(site.counts, site.first, site.slots, kernel.rows)
        return Launch(made, arguments(told, *(site.memories[memory] for memory in Memory)), grid, threads)

    def _through_pool(self, name: str, op: Op, places: Places) -> Launch:
        """Values from the engine's tokens or into them: a thread for each entry of all passes."""
        value, slots, tokens = op.inputs
        entries, each = self._whole.values[slots].size, prod(self._whole.values[slots].shape[1:])
        if name == "take_kept":
            first = places.input(value)
        elif value in places.outputs:
            first = places.outbox.part(4 * places.outputs[value], places.outbox.nbytes - 4 * places.outputs[value])
        else:
            first = places.input(self._prepared.given.get(value, value))
        room = self._whole.values[tokens].size
        told = arguments(first, places.input(slots), places.states[tokens], room, each, places.input("counts"))
        return Launch(Kernel("nodes_pool.cu", name), told, (-(-entries // _THREADS), 1, 1), _THREADS)

    def _packed(self, packing: plans.Packing, places: Places) -> Launch:
        x = places.arena.part(4 * packing.start, 4 * packing.entries)
        start = 4 * places.outputs[packing.name]
        told = arguments(x, places.outbox.part(start, places.outbox.nbytes - start), packing.entries)
        columns = min(-(-packing.entries // 2048), 1024)
        return Launch(Kernel("nodes_pool.cu", "pack_bytes"), told, (columns, 1, 1), _THREADS)
