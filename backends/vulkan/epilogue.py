"""Epilogues on Vulkan: a traced epilogue's Program as launches, with no compiler at run time.

The planner fuses the elementwise nodes and reductions into a few kernels, whose SPIR-V is assembled here; nodes that are
algorithms of their own are prebuilt kernels. See ``docs/decisions/007-epilogue-lowering.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from pie_edge.backends.shared import epilogue_algorithms as algorithms
from pie_edge.backends.shared.epilogue_plan import prepare
from pie_edge.backends.shared.region import span
from pie_edge.backends.vulkan.device import Facts
from pie_edge.backends.vulkan.epilogue_expressions import MEMORIES, WRITABLE
from pie_edge.backends.vulkan.epilogue_kernels import assemble
from pie_edge.backends.vulkan.launch import Access, Binding, Kernel, Launch, Module, words
from pie_edge.backends.vulkan.memory import Region
from pie_edge.backends.vulkan.shaders import shader
from pie_edge.program.ops import Op, Program, Role
from pie_edge.sampling.dialects import kernel as plans
from pie_edge.sampling.dialects.planner import ROUND_BYTES
from pie_edge.sampling.dialects.scalar import Memory

Places = Callable[[str], Region]
"""Where the backend has put a value of the Program."""

_ELEMENTS_AN_INVOCATION = 4


@dataclass(frozen=True)
class VulkanSite(algorithms.Site[Launch]):
    counts: Region
    memories: Mapping[Memory, Region]

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
        bindings = (
            Binding(self.counts),
            *(Binding(self.memories[place.memory]) for place in operands),
            *(Binding(self.memories[place.memory], Access.BOTH) for place in results),
        )
        prefix = self.first, self.slots, rows
        grid = algorithms.grid_of(self.slots * rows, columns)
        return Launch(Kernel(shader(f"nodes_{name}"), constants), bindings, grid, words(*prefix, *push))


class Epilogue:
    """An epilogue's Program made ready for a device.

    ``arena_bytes`` of device memory are needed beside the Program's state, inputs and outputs; its temporaries have no
    places of their own. Passes run in rounds whose temporaries take at most ``round_bytes``. With ``presets`` off nothing is
    looked up: every epilogue goes through the planner.
    """

    def __init__(self, program: Program, facts: Facts, presets: bool = True, round_bytes: int = ROUND_BYTES) -> None:
        self._whole = program
        self._facts = facts
        self._prepared = made = prepare(program, presets, round_bytes)
        self._program, self._sampler, self._plan = made.program, made.sampler, made.plan

    @property
    def arena_bytes(self) -> int:
        return 4 * self._plan.words

    def launches(self, place: Places, arena: Region) -> list[Launch]:
        """In order. ``place`` gives the states' regions, and those of inputs and outputs: each kind's within one buffer."""
        arena = arena.part(0, self.arena_bytes)
        inputs = _Block([(name, place(where)) for name, where in self._prepared.given.items()])
        outputs = _Block([(value.name, place(value.name)) for value in self._program.by_role(Role.OUTPUT)])
        memories = {
            Memory.LOGITS: place(self._program.by_role(Role.STATE)[0].name),
            Memory.INPUTS: inputs.region,
            Memory.ARENA: arena,
            Memory.OUTPUTS: outputs.region,
        }
        starts = {**inputs.starts, **outputs.starts, **self._plan.starts}
        modules = [self._module(number, step, starts) for number, step in enumerate(self._plan.steps)]
        found = [self._taken(op, place) for op in self._prepared.takes]
        for first in self._plan.rounds:
            site = VulkanSite(self._facts, starts, first, self._plan.slots, place("counts"), memories)
            if self._sampler:
                found += self._sampler.launches(site)
            for step, module in zip(self._plan.steps, modules, strict=True):
                if isinstance(step, plans.Kernel):
                    assert module is not None
                    found.append(self._fused(module, step, site))
                else:
                    found += algorithms.launches(site, step)
        found += [self._packed(packing, arena, outputs) for packing in self._plan.packings]
        return [*found, *(self._kept(op, place) for op in self._prepared.keeps)]

    def _module(self, number: int, kernel: plans.Kernel | plans.Call, starts: Mapping[str, int]) -> Module | None:
        if isinstance(kernel, plans.Call):
            return None
        code = assemble(kernel, starts, self._plan.slots, self._lanes(kernel), self._facts.preserves_special)
        return Module(f"{self._program.name}.{number}", code)

    def _lanes(self, kernel: plans.Kernel) -> int:
        if not kernel.reduces:
            return 64
        return algorithms.lanes(self._facts, kernel.extent, sum(loop.extent for loop in kernel.loops))

    def _fused(self, module: Module, kernel: plans.Kernel, site: VulkanSite) -> Launch:
        bindings = tuple(
            Binding(site.memories[memory], Access.BOTH if memory in WRITABLE else Access.READ) for memory in MEMORIES
        )
        columns = 1 if kernel.reduces else -(-kernel.extent // (self._lanes(kernel) * _ELEMENTS_AN_INVOCATION))
        grid = algorithms.grid_of(site.slots * kernel.rows, min(columns, 1024))
        return Launch(Kernel(module), bindings, grid, words(site.first))

    def _taken(self, op: Op, place: Places) -> Launch:
        """What was kept, over what was given."""
        given, slots, tokens = map(place, op.inputs)
        bindings = Binding(place("counts")), Binding(slots), Binding(tokens), Binding(given, Access.BOTH)
        return self._through_pool("take_kept", op, bindings)

    def _kept(self, op: Op, place: Places) -> Launch:
        """Each pass's value into its slots, where later passes may find it."""
        chosen, slots, tokens = map(place, op.inputs)
        bindings = Binding(place("counts")), Binding(chosen), Binding(slots), Binding(tokens, Access.WRITE)
        return self._through_pool("keep_token", op, bindings)

    def _through_pool(self, name: str, op: Op, bindings: tuple[Binding, ...]) -> Launch:
        values = self._whole.values
        entries, each = values[op.inputs[1]].size, prod(values[op.inputs[1]].shape[1:])
        push = words(values[op.inputs[2]].size, each)
        return Launch(Kernel(shader(f"nodes_{name}"), (64,)), bindings, (-(-entries // 64), 1, 1), push)

    def _packed(self, packing: plans.Packing, arena: Region, outputs: _Block) -> Launch:
        bindings = Binding(arena), Binding(outputs.region, Access.BOTH)
        push = words(packing.start, outputs.starts[packing.name], packing.entries)
        columns = min(-(-packing.entries // 2048), 1024)
        return Launch(Kernel(shader("nodes_pack_bytes"), (64,)), bindings, (columns, 1, 1), push)


class _Block:
    """Regions of one buffer as one region, and the word where each begins in it."""

    def __init__(self, regions: Sequence[tuple[str, Region]]) -> None:
        self.region = span([region for _, region in regions])
        self.starts = {name: (region.offset - self.region.offset) // 4 for name, region in regions}
