"""A kernel's reductions as CUDA C++: every thread brings its elements together, then the block does (``kernels/fused.cuh``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pie_edge.backends.cuda.epilogue_text import FORMS, TYPES, constant
from pie_edge.backends.shared.epilogue_reductions import comparison, keeps_loss, never
from pie_edge.program.node_types import Element
from pie_edge.sampling.dialects.kernel import Combine, Reduction

_NOWHERE = "0xffffffffu"


@dataclass(frozen=True, slots=True)
class Partial:
    """A reduction's variables by name: its value so far, its index, and for a sum of floats what it has rounded away."""

    reduction: Reduction

    @property
    def value(self) -> str:
        return f"r{self.reduction.number}"

    @property
    def index(self) -> str:
        return f"i{self.reduction.number}"

    @property
    def loss(self) -> str:
        return f"l{self.reduction.number}"

    @property
    def element(self) -> Element:
        return self.reduction.element

    @property
    def sums(self) -> bool:
        return self.reduction.combine is Combine.SUM

    def better(self, value: str, old: str) -> str:
        return FORMS[comparison(self.reduction), self.element].format(value, old)


class Reducer:
    """Reductions of one kernel, written by ``line``."""

    def __init__(self, line: Callable[[str], None]) -> None:
        self._line = line

    def begin(self, reduction: Reduction) -> Partial:
        partial = Partial(reduction)
        self._line(f"{TYPES[partial.element]} {partial.value} = {constant(partial.element, never(reduction))};")
        if keeps_loss(reduction):
            self._line(f"float {partial.loss} = 0.0f;")
        if not partial.sums:
            self._line(f"u32 {partial.index} = {_NOWHERE};")
        return partial

    def take(self, partial: Partial, value: str) -> None:
        """Bring in the element of the loop's ``index``, which is larger than those before."""
        if not partial.sums:
            better = partial.better(value, partial.value)
            self._line(f"if ({better}) {partial.value} = {value}, {partial.index} = index;")
        elif keeps_loss(partial.reduction):
            self._line(f"sum_exactly({partial.value}, {partial.loss}, {value});")
        else:
            self._line(f"{partial.value} += {value};")

    def finish(self, partials: Sequence[Partial]) -> dict[int, str]:
        """Bring the threads' values together: every thread has the results, whose names come by reduction."""
        return {partial.reduction.number: self._finished(partial) for partial in partials}

    def _finished(self, partial: Partial) -> str:
        if partial.sums:
            whole = f"whole_sum({partial.value}, {partial.loss})" if keeps_loss(partial.reduction) else partial.value
            self._line(f"{partial.value} = reduce_sum({whole}, room);")
            return partial.value
        kind = TYPES[partial.element]
        better = f"[]({kind} x, {kind} y) {{ return {partial.better('x', 'y')}; }}"
        self._line(f"reduce_best({better}, {partial.value}, {partial.index}, room);")
        if not partial.reduction.combine.of_index:
            return partial.value
        # Of nothing the index is 0.
        self._line(f"if ({partial.index} == {_NOWHERE}) {partial.index} = 0u;")
        return partial.index
