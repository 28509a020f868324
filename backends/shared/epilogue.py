"""A traced epilogue's Program as launches, whatever the API. See ``docs/decisions/007-epilogue-lowering.md``.

The planner's fused kernels are written when an epilogue is first used; nodes that are algorithms of their own have kernels by
hand (``epilogue_algorithms.py``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Generic, TypeVar

from pie_edge.backends.shared import epilogue_algorithms as algorithms
from pie_edge.backends.shared.epilogue_algorithms import L
from pie_edge.backends.shared.epilogue_plan import prepare
from pie_edge.backends.shared.region import B, Region
from pie_edge.program.ops import Op, Program, Role
from pie_edge.sampling.dialects import kernel as plans
from pie_edge.sampling.dialects.planner import ROUND_BYTES
from pie_edge.sampling.dialects.scalar import Memory

LOCAL = 64
"""Invocations of a workgroup that share no row."""
_ELEMENTS_AN_INVOCATION = 4
_MOST_COLUMNS = 1024
_PACKED_A_COLUMN = 2048

MadeT = TypeVar("MadeT")
"""A fused kernel, as the backend has them."""


@dataclass(frozen=True)
class Places(Generic[B]):
    """Where an epilogue's values lie: states, inputs and outputs by name, and the buffers that hold all inputs, all outputs, and
    temporaries."""

    regions: Mapping[str, Region[B]]
    inbox: Region[B]
    outbox: Region[B]
    arena: Region[B]

    def memory_of(self, name: str) -> Memory:
        """Of an input or an output."""
        return Memory.OUTPUTS if self.regions[name].buffer is self.outbox.buffer else Memory.INPUTS

    def word(self, name: str) -> int:
        """Where an input or output begins in its memory."""
        box = self.outbox if self.memory_of(name) is Memory.OUTPUTS else self.inbox
        return (self.regions[name].offset - box.offset) // 4


@dataclass(frozen=True)
class PlacedSite(algorithms.Site[L], Generic[B, L]):
    memories: Mapping[Memory, Region[B]]
    places: Places[B]

    def grid(self, run: algorithms.Run) -> tuple[int, int, int]:
        return algorithms.grid_of(self.slots * run.rows, run.columns)


class BaseEpilogue(ABC, Generic[B, MadeT, L]):
    """An epilogue's Program made ready for a device.

    ``arena_bytes`` of device memory are needed beside the Program's state, inputs and outputs; its temporaries have no
    places of their own. Passes run in rounds whose temporaries take at most ``round_bytes``. With ``presets`` off nothing is
    looked up: every epilogue goes through the planner.
    """

    site: type[PlacedSite[B, L]]

    def __init__(
        self, program: Program, facts: algorithms.Facts, presets: bool = True, round_bytes: int = ROUND_BYTES
    ) -> None:
        self._whole = program
        self._facts = facts
        self._prepared = made = prepare(program, presets, round_bytes)
        self._program, self._sampler, self._plan = made.program, made.sampler, made.plan

    @property
    def arena_bytes(self) -> int:
        return max(4 * self._plan.words, 16)

    def launches(self, places: Places[B]) -> list[L]:
        """In order."""
        memories = {
            **{memory: places.regions[name] for memory, name in self._prepared.states.items()},
            Memory.INPUTS: places.inbox,
            Memory.ARENA: places.arena,
            Memory.OUTPUTS: places.outbox,
        }
        given = {name: places.word(where) for name, where in self._prepared.given.items()}
        outputs = {value.name: places.word(value.name) for value in self._program.by_role(Role.OUTPUT)}
        starts = {**given, **outputs, **self._plan.starts}
        made = {
            number: self._kernel(f"{self._program.name}-{number}", step, starts, self._lanes(step))
            for number, step in enumerate(self._plan.steps)
            if isinstance(step, plans.Kernel)
        }
        found = [self._through_pool("take_kept", op, places) for op in self._prepared.takes]
        for first in self._plan.rounds:
            site = self.site(self._facts, starts, first, self._plan.slots, memories, places)
            if self._sampler:
                found += self._sampler.launches(site)
            for number, step in enumerate(self._plan.steps):
                if isinstance(step, plans.Kernel):
                    found.append(self._round(made[number], step, site))
                else:
                    found += algorithms.launches(site, step)
        for packing in self._plan.packings:
            columns = min(-(-packing.entries // _PACKED_A_COLUMN), _MOST_COLUMNS)
            found.append(self._packed(packing, memories, places.word(packing.name), (columns, 1, 1)))
        return [*found, *(self._through_pool("keep_token", op, places) for op in self._prepared.keeps)]

    def _lanes(self, kernel: plans.Kernel) -> int:
        """Invocations that share a row."""
        if not kernel.reduces:
            return LOCAL
        return algorithms.lanes(self._facts, kernel.extent, sum(loop.extent for loop in kernel.loops))

    def _round(self, made: MadeT, kernel: plans.Kernel, site: PlacedSite[B, L]) -> L:
        lanes = self._lanes(kernel)
        columns = 1 if kernel.reduces else -(-kernel.extent // (lanes * _ELEMENTS_AN_INVOCATION))
        grid = algorithms.grid_of(site.slots * kernel.rows, min(columns, _MOST_COLUMNS))
        return self._fused(made, kernel, site, grid, lanes)

    def _through_pool(self, name: str, op: Op, places: Places[B]) -> L:
        """Values from the engine's tokens or into them: an invocation for each entry of all passes."""
        value, slots, tokens = op.inputs
        given = self._whole.values[slots]
        grid = (-(-given.size // LOCAL), 1, 1)
        where = self._prepared.given.get(value, value)
        return self._pooled(name, (where, slots, tokens), prod(given.shape[1:]), places, grid)

    @abstractmethod
    def _kernel(self, name: str, kernel: plans.Kernel, starts: Mapping[str, int], lanes: int) -> MadeT:
        """``starts`` has the word where each value begins in its memory."""

    @abstractmethod
    def _fused(self, made: MadeT, kernel: plans.Kernel, site: Any, grid: tuple[int, int, int], lanes: int) -> L:
        """One round's launch."""

    @abstractmethod
    def _pooled(
        self, name: str, names: tuple[str, str, str], each: int, places: Places[B], grid: tuple[int, int, int]
    ) -> L:
        """``take_kept`` or ``keep_token``: a value, its slots, and the engine's tokens by name; ``each`` entries of a pass."""

    @abstractmethod
    def _packed(
        self, packing: plans.Packing, memories: Mapping[Memory, Region[B]], start: int, grid: tuple[int, int, int]
    ) -> L:
        """Truths as bytes, from the arena to the outputs from the word ``start`` on."""
