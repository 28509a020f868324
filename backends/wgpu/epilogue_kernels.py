"""The epilogue's fused kernels as WGSL: WGSL is source, so nothing else is needed."""

from __future__ import annotations

from collections.abc import Mapping

from pie_edge.backends.shared.epilogue_writer import Writer
from pie_edge.backends.wgpu.epilogue_reductions import WgslReducer
from pie_edge.backends.wgpu.epilogue_text import WGSL
from pie_edge.backends.wgpu.templates import expand
from pie_edge.sampling.dialects.kernel import Kernel

_ENTRY = (
    "@compute @workgroup_size(LOCAL)",
    "fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(num_workgroups) workgroups: vec3<u32>,",
    "        @builtin(local_invocation_index) lane: u32) {",
    "    let along = workgroup.z * workgroups.y + workgroup.y;",
    "    if (along >= true_rows()) { return; }",
    "    let slot = along / ROWS;",
    "    let pass_ = slot + p.first;",
    "    let row = along % ROWS;",
)


def kernel_text(kernel: Kernel, starts: Mapping[str, int], lanes: int) -> str:
    """``starts`` has the word where each value begins in its memory."""
    return _Writer(kernel, starts, lanes).text()


class _Writer(Writer[WgslReducer]):
    dialect, indent = WGSL, "    "

    def _reductions(self) -> WgslReducer:
        return WgslReducer(self.line, self._lanes)

    def text(self) -> str:
        rows, told = self.rows(), {"COUNTS": self._starts["counts"], "ROWS": self._kernel.rows}
        head = expand("fused", {"LOCAL": self._lanes, **told, "LOGITS": "u32"})
        return "\n".join([head, *self._reducer.declarations(), *_ENTRY, *rows, "}"]) + "\n"
