"""Epilogues on wgpu: a traced epilogue's Program as launches. See ``docs/decisions/007-epilogue-lowering.md``.

All kernels of an epilogue are bound to the same four buffers: logits, the step's inputs, the temporaries and the outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from pie_edge.backends.shared import epilogue_algorithms as algorithms
from pie_edge.backends.shared.epilogue_plan import prepare
from pie_edge.backends.wgpu.epilogue_kernels import kernel_shader
from pie_edge.backends.wgpu.memory import Region
from pie_edge.backends.wgpu.plan import Launch, launch
from pie_edge.backends.wgpu.shader import Shader, node_shader, shader, words
from pie_edge.program.ops import Op, Program, Role
from pie_edge.sampling.dialects import kernel as plans
from pie_edge.sampling.dialects.planner import ROUND_BYTES
from pie_edge.sampling.dialects.scalar import Memory

_ELEMENTS_AN_INVOCATION = 4
_LOCAL = 64


@dataclass(frozen=True)
class Places:
    """Where an epilogue's values lie: states by name, inputs and outputs as words of a block each."""

    states: Mapping[str, Region]
    inbox: Region
    inputs: Mapping[str, int]
    outbox: Region
    outputs: Mapping[str, int]
    arena: Region


@dataclass(frozen=True)
class WgpuSite(algorithms.Site[Launch]):
    bindings: Mapping[str, Region]
    counts: int

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
        read = tuple(place.memory.value for place in operands)
        written = tuple(place.memory.value for place in results)
        more: dict[str, Any] = {"IN": read, "OUT": written, "COUNTS": self.counts, "LOGITS": "u32"}
        if name == "sample":
            aligned = bool(constants[-1])
            more |= {"LOGITS": "vec4<f32>" if aligned else "f32"}
            more |= {"LIST": self.starts["list"], "TOKENS": self.starts["out0"]}
        kernel = node_shader(name, constants, more)
        params = words(self.first, self.slots, rows, *push, 0)
        return Launch(kernel, self.bindings, algorithms.grid_of(self.slots * rows, columns), params)


class Epilogue:
    """An epilogue's Program made ready for a device.

    ``arena_bytes`` of device memory are needed beside the Program's state, inputs and outputs; its temporaries have no
    places of their own. Passes run in rounds whose temporaries take at most ``round_bytes``. With ``presets`` off nothing is
    looked up: every epilogue goes through the planner.
    """

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

    def launches(self, places: Places) -> list[Launch]:
        """In order."""
        bindings = {
            Memory.LOGITS.value: places.states[self._program.by_role(Role.STATE)[0].name],
            Memory.INPUTS.value: places.inbox,
            Memory.ARENA.value: places.arena,
            Memory.OUTPUTS.value: places.outbox,
        }
        given = {name: places.inputs[where] for name, where in self._prepared.given.items()}
        starts = {**given, **places.outputs, **self._plan.starts}
        counts = places.inputs["counts"]
        shaders = [self._shader(number, step, starts, counts) for number, step in enumerate(self._plan.steps)]
        found = [self._through_pool("take_kept", op, places) for op in self._prepared.takes]
        for first in self._plan.rounds:
            site = WgpuSite(self._facts, starts, first, self._plan.slots, bindings, counts)
            if self._sampler:
                found += self._sampler.launches(site)
            for step, made in zip(self._plan.steps, shaders, strict=True):
                if isinstance(step, plans.Kernel):
                    assert made is not None
                    found.append(self._fused(made, step, site))
                else:
                    found += algorithms.launches(site, step)
        found += [self._packed(packing, bindings, places.outputs) for packing in self._plan.packings]
        return [*found, *(self._through_pool("keep_token", op, places) for op in self._prepared.keeps)]

    def _shader(
        self, number: int, step: plans.Kernel | plans.Call, starts: Mapping[str, int], counts: int
    ) -> Shader | None:
        if isinstance(step, plans.Call):
            return None
        return kernel_shader(f"{self._program.name}.{number}", step, starts, counts, self._lanes(step))

    def _lanes(self, kernel: plans.Kernel) -> int:
        if not kernel.reduces:
            return _LOCAL
        return min(algorithms.lanes(self._facts, kernel.extent, sum(loop.extent for loop in kernel.loops)), 256)

    def _fused(self, made: Shader, kernel: plans.Kernel, site: WgpuSite) -> Launch:
        columns = 1 if kernel.reduces else -(-kernel.extent // (self._lanes(kernel) * _ELEMENTS_AN_INVOCATION))
        grid = algorithms.grid_of(site.slots * kernel.rows, min(columns, 1024))
        return launch(made, site.bindings, grid, first=site.first, slots=site.slots, zero=0)

    def _through_pool(self, name: str, op: Op, places: Places) -> Launch:
        """Values from the engine's tokens or into them: an invocation for each entry of all passes."""
        value, slots, tokens = op.inputs
        entries, each = self._whole.values[slots].size, prod(self._whole.values[slots].shape[1:])
        room = self._whole.values[tokens].size
        bindings = {"inputs": places.inbox, "tokens": places.states[tokens]}
        told = {"slots": places.inputs[slots], "room": room, "each": each}
        memory = "inputs"
        if name == "take_kept":
            told["given"] = places.inputs[value]
        elif value in places.outputs:
            memory, bindings["outputs"], told["chosen"] = "outputs", places.outbox, places.outputs[value]
        else:
            told["chosen"] = places.inputs[self._prepared.given.get(value, value)]
        constants: dict[str, Any] = {"LOCAL": _LOCAL, "COUNTS": places.inputs["counts"], "CHOSEN": memory}
        return launch(shader(f"nodes/{name}", **constants), bindings, (-(-entries // _LOCAL), 1, 1), **told)

    def _packed(self, packing: plans.Packing, bindings: Mapping[str, Region], outputs: Mapping[str, int]) -> Launch:
        columns = min(-(-packing.entries // 2048), 1024)
        told = {"x_start": packing.start, "y_start": outputs[packing.name], "entries": packing.entries, "zero": 0}
        kernel = shader("nodes/pack_bytes", LOCAL=_LOCAL, LOGITS="u32")
        return launch(kernel, bindings, (columns, 1, 1), **told)
