"""A kernel's reductions in dialects of C++: every thread brings its elements together, then the workgroup does."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from pie_edge.backends.shared.epilogue_dialect import Dialect, Partial
from pie_edge.backends.shared.epilogue_writer import Reducer
from pie_edge.sampling.dialects.kernel import Reduction

_NOWHERE = "0xffffffffu"


class CppReducer(Reducer):
    """Headers of the kernels have ``sum_exactly``, which keeps what a sum rounds away, and ``whole_sum``, which adds that."""

    dialect: Dialect

    @abstractmethod
    def _summed(self, value: str) -> str:
        """All threads' values together."""

    @abstractmethod
    def _best(self, partial: Partial) -> str:
        """A statement by which every thread has the best value and its index."""

    def begin(self, reduction: Reduction) -> Partial:
        partial = Partial(reduction, self.dialect)
        self._line(f"{partial.type} {partial.value} = {partial.never};")
        if partial.keeps_loss:
            self._line(f"float {partial.loss} = 0.0f;")
        if not partial.sums:
            self._line(f"u32 {partial.index} = {_NOWHERE};")
        return partial

    def take(self, partial: Partial, value: str, index: str = "index") -> None:
        if partial.keeps_loss:
            self._line(f"sum_exactly({partial.value}, {partial.loss}, {value});")
        elif partial.sums:
            self._line(f"{partial.value} += {value};")
        else:
            better = partial.better(value, partial.value)
            self._line(f"if ({better}) {{ {partial.value} = {value}; {partial.index} = {index}; }}")

    def finish(self, partials: Sequence[Partial]) -> dict[int, str]:
        return {partial.reduction.number: self._finished(partial) for partial in partials}

    def _finished(self, partial: Partial) -> str:
        if partial.sums:
            whole = f"whole_sum({partial.value}, {partial.loss})" if partial.keeps_loss else partial.value
            self._line(f"{partial.value} = {self._summed(whole)};")
            return partial.value
        self._line(self._best(partial))
        if not partial.is_of_index:
            return partial.value
        # Of nothing the index is 0.
        self._line(f"if ({partial.index} == {_NOWHERE}) {partial.index} = 0u;")
        return partial.index
