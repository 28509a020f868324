"""Epilogues on wgpu: a traced epilogue's Program as launches. The planner's fused kernels are written as WGSL.

All kernels of an epilogue are bound to the same four buffers: logits, the step's inputs, the temporaries and the outputs; those
that fuse nodes to the hidden states, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pie_edge.backends.shared import epilogue_algorithms as algorithms
from pie_edge.backends.shared.epilogue import LOCAL, BaseEpilogue, PlacedSite, Places
from pie_edge.backends.shared.words import words
from pie_edge.backends.wgpu.epilogue_kernels import kernel_text
from pie_edge.backends.wgpu.memory import Buffer, Region
from pie_edge.backends.wgpu.plan import Launch, launch
from pie_edge.backends.wgpu.shader import Shader, node_shader, shader
from pie_edge.sampling.dialects import kernel as plans
from pie_edge.sampling.dialects.scalar import Memory


@dataclass(frozen=True)
class WgpuSite(PlacedSite[Buffer, Launch]):
    def launch(self, run: algorithms.Run) -> Launch:
        read = tuple(place.memory.value for place in run.operands)
        written = tuple(place.memory.value for place in run.results)
        more: dict[str, Any] = {"IN": read, "OUT": written, "COUNTS": self.places.word("counts"), "LOGITS": "u32"}
        if run.name == "sample":
            aligned = bool(run.constants[-1])
            more |= {"LOGITS": "vec4<f32>" if aligned else "f32"}
            more |= {"LIST": self.starts["list"], "TOKENS": self.starts["out0"]}
        kernel = node_shader(run.name, run.constants, more)
        params = words(self.first, self.slots, run.rows, *run.push, 0)
        return Launch(kernel, bound(kernel, self.memories), self.grid(run), params)


def bound(kernel: Shader, memories: Mapping[Memory, Region]) -> dict[str, Region]:
    """Those that a kernel has, by its names for them."""
    return {slot.name: memories[Memory(slot.name)] for slot in kernel.slots}


class Epilogue(BaseEpilogue[Buffer, Shader, Launch]):
    site = WgpuSite

    def _kernel(self, name: str, kernel: plans.Kernel, starts: Mapping[str, int], lanes: int) -> Shader:
        return Shader(name, kernel_text(kernel, starts, lanes))

    def _fused(
        self, made: Shader, kernel: plans.Kernel, site: WgpuSite, grid: tuple[int, int, int], lanes: int
    ) -> Launch:
        return launch(made, bound(made, site.memories), grid, first=site.first, slots=site.slots, zero=0)

    def _pooled(
        self, name: str, names: tuple[str, str, str], each: int, places: Places[Buffer], grid: tuple[int, int, int]
    ) -> Launch:
        value, slots, tokens = names
        memory, taken = places.memory_of(value).value, name == "take_kept"
        given = {"inputs": places.inbox, "tokens": places.regions[tokens]}
        if memory == "outputs":
            given["outputs"] = places.outbox
        told = {"slots": places.word(slots), "room": self._whole.values[tokens].size, "each": each}
        told["given" if taken else "chosen"] = places.word(value)
        constants: dict[str, Any] = {"LOCAL": LOCAL, "COUNTS": places.word("counts"), "CHOSEN": memory}
        return launch(shader(f"nodes/{name}", **constants), given, grid, **told)

    def _packed(
        self, packing: plans.Packing, memories: Mapping[Memory, Region], start: int, grid: tuple[int, int, int]
    ) -> Launch:
        told = {"x_start": packing.start, "y_start": start, "entries": packing.entries, "zero": 0}
        kernel = shader("nodes/pack_bytes", LOCAL=LOCAL, LOGITS="u32")
        return launch(kernel, bound(kernel, memories), grid, **told)
