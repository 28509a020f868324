"""A kernel's reductions as CUDA C++: every thread brings its elements together, then the block does (``kernels/fused.cuh``)."""

from __future__ import annotations

from collections.abc import Sequence

from pie_edge.backends.cuda.epilogue_text import CUDA
from pie_edge.backends.shared.epilogue_dialect import Partial
from pie_edge.backends.shared.epilogue_writer import Reducer
from pie_edge.sampling.dialects.kernel import Reduction

_NOWHERE = "0xffffffffu"


class CudaReducer(Reducer):
    def begin(self, reduction: Reduction) -> Partial:
        partial = Partial(reduction, CUDA)
        self._line(f"{partial.type} {partial.value} = {partial.never};")
        if partial.keeps_loss:
            self._line(f"float {partial.loss} = 0.0f;")
        if not partial.sums:
            self._line(f"u32 {partial.index} = {_NOWHERE};")
        return partial

    def take(self, partial: Partial, value: str, index: str = "index") -> None:
        if not partial.sums:
            better = partial.better(value, partial.value)
            self._line(f"if ({better}) {partial.value} = {value}, {partial.index} = {index};")
        elif partial.keeps_loss:
            self._line(f"sum_exactly({partial.value}, {partial.loss}, {value});")
        else:
            self._line(f"{partial.value} += {value};")

    def finish(self, partials: Sequence[Partial]) -> dict[int, str]:
        return {partial.reduction.number: self._finished(partial) for partial in partials}

    def _finished(self, partial: Partial) -> str:
        if partial.sums:
            whole = f"whole_sum({partial.value}, {partial.loss})" if partial.keeps_loss else partial.value
            self._line(f"{partial.value} = reduce_sum({whole}, room);")
            return partial.value
        kind = partial.type
        better = f"[]({kind} x, {kind} y) {{ return {partial.better('x', 'y')}; }}"
        self._line(f"reduce_best({better}, {partial.value}, {partial.index}, room);")
        if not partial.is_of_index:
            return partial.value
        # Of nothing the index is 0.
        self._line(f"if ({partial.index} == {_NOWHERE}) {partial.index} = 0u;")
        return partial.index
