"""Pipelines and bind group layouts: made once for a device, by shader and layout."""

from __future__ import annotations

import re

from pie_edge.backend import Stop
from pie_edge.backends.wgpu.api import Handle, wgpu
from pie_edge.backends.wgpu.plan import Layout
from pie_edge.backends.wgpu.shader import Shader
from pie_edge.errors import BackendError

_COMPUTE = wgpu.ShaderStage.COMPUTE
_LINE = re.compile(r"wgsl:(\d+):\d+")


class Pipelines:
    """Thread-safe as long as no two threads ask for the same kernels: Programs are compiled one at a time."""

    def __init__(self, device: Handle, stop: Stop) -> None:
        self._device = device
        self._stop = stop
        self._modules: dict[str, Handle] = {}
        self._layouts: dict[Layout, Handle] = {}
        self._made: dict[tuple[str, Layout], Handle] = {}
        self.params = device.create_bind_group_layout(
            entries=[{"binding": 0, "visibility": _COMPUTE, "buffer": {"type": "uniform", "has_dynamic_offset": True}}]
        )
        """The layout of group 1: parameters at a dynamic offset."""

    def layout(self, layout: Layout) -> Handle:
        if layout not in self._layouts:
            entries = [{"binding": n, "visibility": _COMPUTE, "buffer": {"type": kind}} for n, kind in layout]
            self._layouts[layout] = self._device.create_bind_group_layout(entries=entries)
        return self._layouts[layout]

    def pipeline(self, shader: Shader, layout: Layout) -> Handle:
        """Raises BackendError that names the kernel and the line."""
        key = shader.digest, layout
        if key not in self._made:
            self._stop.look()
            try:
                module = self._module(shader)
                whole = self._device.create_pipeline_layout(bind_group_layouts=[self.layout(layout), self.params])
                self._made[key] = self._device.create_compute_pipeline(
                    label=shader.name, layout=whole, compute={"module": module, "entry_point": "main"}
                )
            except (wgpu.GPUError, RuntimeError) as error:
                raise BackendError(_refusal(shader, str(error))) from error
        return self._made[key]

    def __len__(self) -> int:
        return len(self._made)

    def _module(self, shader: Shader) -> Handle:
        if shader.digest not in self._modules:
            self._modules[shader.digest] = self._device.create_shader_module(label=shader.name, code=shader.code)
        return self._modules[shader.digest]


def _refusal(shader: Shader, message: str) -> str:
    found = _LINE.search(message)
    lines = shader.code.splitlines()
    place = ""
    if found and int(found[1]) <= len(lines):
        place = f", line {found[1]} ({lines[int(found[1]) - 1].strip()})"
    said = "; ".join(line.strip() for line in message.splitlines() if line.strip())[:400]
    return f"wgpu doesn't compile kernel {shader.name!r}{place}: {said}"
