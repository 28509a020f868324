"""The epilogue's fused kernels as CUDA C++: a block takes a row."""

from __future__ import annotations

from collections.abc import Mapping

from pie_edge.backends.cuda.epilogue_text import CUDA
from pie_edge.backends.shared.epilogue_cpp import CppReducer
from pie_edge.backends.shared.epilogue_dialect import Partial
from pie_edge.backends.shared.epilogue_writer import Writer
from pie_edge.sampling.dialects.kernel import Kernel
from pie_edge.sampling.dialects.scalar import Memory

_READ = (Memory.LOGITS, Memory.HIDDEN, Memory.INPUTS)


def kernel_text(kernel: Kernel, starts: Mapping[str, int], threads: int) -> str:
    """``starts`` has the word where each value begins in its memory."""
    return _Writer(kernel, starts, threads).text()


class _Reducer(CppReducer):
    """See ``kernels/fused.cuh``."""

    dialect = CUDA

    def _summed(self, value: str) -> str:
        return f"reduce_sum({value}, room)"

    def _best(self, partial: Partial) -> str:
        better = f"[]({partial.type} x, {partial.type} y) {{ return {partial.better('x', 'y')}; }}"
        return f"reduce_best({better}, {partial.value}, {partial.index}, room);"


class _Writer(Writer[_Reducer]):
    dialect, indent = CUDA, "  "

    def _reductions(self) -> _Reducer:
        return _Reducer(self.line, self._lanes)

    def text(self) -> str:
        kernel = self._kernel
        if kernel.reduces:
            self.line(f"__shared__ u32 room[{2 * (self._lanes // 32)}];")
        self.line("u32 along = round.row();")
        self.line("if (along == ~0u) return;")
        self.line(f"u32 slot = along / {kernel.rows}u, pass = slot + round.first, row = along % {kernel.rows}u;")
        memories = ", ".join(f"{'const ' * (m in _READ)}u32* {m.value}" for m in Memory)
        head = f'extern "C" __global__ void __launch_bounds__({self._lanes}) fused(Round round, {memories}) {{'
        return "\n".join(['#include "fused.cuh"', "", head, *self.rows(), "}"]) + "\n"
