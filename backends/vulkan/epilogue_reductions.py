"""A kernel's reductions as SPIR-V: every lane brings its elements together, then the lanes do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pie_edge.backends.shared.epilogue_reductions import COLUMNS, FEW, comparison, keeps_loss, never
from pie_edge.backends.vulkan.epilogue_expressions import Expressions
from pie_edge.backends.vulkan.epilogue_instructions import INSTRUCTIONS
from pie_edge.backends.vulkan.spirv import Op, Storage
from pie_edge.program.node_types import Element
from pie_edge.sampling.dialects.kernel import Combine, Reduction

SHARED_WORDS = 4096
"""Of shared memory: every Vulkan device has 16 KiB."""


@dataclass(frozen=True, slots=True)
class Partial:
    """A reduction's variables: its value so far; where that is asked for, its index; for a sum of floats, what it has
    rounded away."""

    reduction: Reduction
    value: int
    index: int | None = None
    loss: int | None = None

    @property
    def element(self) -> Element:
        return self.reduction.element


class Reducer:
    """Reductions of one kernel. ``lane`` is the id of an invocation's number within its workgroup of ``lanes``."""

    def __init__(self, expressions: Expressions, lane: int, lanes: int) -> None:
        self._e, self._a = expressions, expressions.assembler
        self._lane, self._lanes = lane, lanes
        self._shared: list[int] = []

    def begin(self, reduction: Reduction) -> Partial:
        a, kind = self._a, self._e.types[reduction.element]
        value = self._variable(kind, self._never(reduction))
        if reduction.combine.of_index:
            return Partial(reduction, value, index=self._variable(a.u32, a.constant_u32(0)))
        if keeps_loss(reduction):
            return Partial(reduction, value, loss=self._variable(a.f32, a.constant_f32(0.0)))
        return Partial(reduction, value)

    def take(self, partial: Partial, value: int, index: int) -> None:
        """Bring in one more element, whose index is larger than those before."""
        a, kind = self._a, self._e.types[partial.element]
        old = a.load(partial.value, kind)
        if partial.loss is not None:
            self._sum(partial.value, partial.loss, old, value)
        elif partial.reduction.combine is Combine.SUM:
            a.store(partial.value, a.result(Op.I_ADD, a.u32, old, value))
        else:
            better = a.result(self._better(partial), a.bool, value, old)
            a.store(partial.value, a.result(Op.SELECT, kind, better, value, old))
            if partial.index is not None:
                a.store(partial.index, a.result(Op.SELECT, a.u32, better, index, a.load(partial.index, a.u32)))

    def finish(self, partials: Sequence[Partial]) -> None:
        """Bring the lanes' values together: every lane has the results, and ``Expressions.reduced`` their ids."""
        for partial in partials:
            self._settle(partial)
        width = max(1, SHARED_WORDS // (2 * self._lanes))
        for at in range(0, len(partials), width):
            self._combine(partials[at : at + width])

    def _variable(self, kind: int, value: int) -> int:
        found = self._a.variable(Storage.FUNCTION, kind)
        self._a.store(found, value)
        return found

    def _never(self, reduction: Reduction) -> int:
        return self._e.constant(reduction.element, never(reduction))

    def _better(self, partial: Partial) -> Op:
        return INSTRUCTIONS[comparison(partial.reduction), partial.element]

    def _sum(self, kept: int, loss: int, old: int, value: int) -> None:
        """A sum, and what it rounds away (Knuth's TwoSum): a lane may sum thousands of numbers."""
        a = self._a
        total = a.exact(Op.F_ADD, a.f32, old, value)
        part = a.exact(Op.F_SUB, a.f32, total, old)
        rest = a.exact(Op.F_SUB, a.f32, old, a.exact(Op.F_SUB, a.f32, total, part))
        lost = a.exact(Op.F_ADD, a.f32, rest, a.exact(Op.F_SUB, a.f32, value, part))
        a.store(kept, total)
        a.store(loss, a.exact(Op.F_ADD, a.f32, a.load(loss, a.f32), lost))

    def _settle(self, partial: Partial) -> None:
        """What a lane's sum has rounded away goes back into it, unless that is infinite or not a number."""
        if partial.loss is None:
            return
        a = self._a
        total = a.load(partial.value, a.f32)
        nothing = a.exact(Op.F_SUB, a.f32, total, total)
        finite = a.result(Op.F_EQUAL, a.bool, nothing, a.constant_f32(0.0))
        exact = a.exact(Op.F_ADD, a.f32, total, a.load(partial.loss, a.f32))
        a.store(partial.value, a.result(Op.SELECT, a.f32, finite, exact, total))

    # Lanes together.

    def _combine(self, partials: Sequence[Partial]) -> None:
        a = self._a
        columns = self._lanes if self._lanes <= FEW else COLUMNS
        a.barrier()
        self._share(partials)
        a.barrier()
        if columns < self._lanes:
            with a.branch_if(a.result(Op.U_LESS, a.bool, self._lane, a.constant_u32(columns))):
                self._gather(
                    partials, a.result(Op.I_ADD, a.u32, self._lane, a.constant_u32(columns)), self._lanes, columns
                )
                self._share(partials)
            a.barrier()
        for partial in partials:
            a.store(partial.value, self._never(partial.reduction))
            if partial.index is not None:
                a.store(partial.index, a.constant_u32(0))
        self._gather(partials, a.constant_u32(0), columns, 1)
        for partial in partials:
            kind = self._e.types[partial.element]
            found = a.load(partial.value, kind) if partial.index is None else a.load(partial.index, a.u32)
            self._e.reduced[partial.reduction.number] = found

    def _share(self, partials: Sequence[Partial]) -> None:
        """Write this lane's values to shared memory."""
        a = self._a
        for number, partial in enumerate(partials):
            word = self._e.as_word(a.load(partial.value, self._e.types[partial.element]), partial.element)
            a.store(self._place(2 * number, self._lane), word)
            if partial.index is not None:
                a.store(self._place(2 * number + 1, self._lane), a.load(partial.index, a.u32))

    def _gather(self, partials: Sequence[Partial], begin: int, end: int, step: int) -> None:
        """Bring some lanes' values into this one's."""
        a = self._a
        with a.loop(begin, a.constant_u32(end), a.constant_u32(step)) as lane:
            for number, partial in enumerate(partials):
                value = self._e.from_word(a.load(self._place(2 * number, lane), a.u32), partial.element)
                if partial.index is not None:
                    self._take_lower(partial, partial.index, value, a.load(self._place(2 * number + 1, lane), a.u32))
                elif partial.loss is not None:
                    total = a.exact(Op.F_ADD, a.f32, a.load(partial.value, a.f32), value)
                    a.store(partial.value, total)
                else:
                    self.take(partial, value, lane)

    def _take_lower(self, partial: Partial, place: int, value: int, index: int) -> None:
        """Like ``take``, of elements in any order: of equal ones the lower index stays."""
        a, kind = self._a, self._e.types[partial.element]
        old, old_index = a.load(partial.value, kind), a.load(place, a.u32)
        equal = a.result(INSTRUCTIONS["eq", partial.element], a.bool, value, old)
        lower = a.result(Op.U_LESS, a.bool, index, old_index)
        tie = a.result(Op.LOGICAL_AND, a.bool, equal, lower)
        better = a.result(Op.LOGICAL_OR, a.bool, a.result(self._better(partial), a.bool, value, old), tie)
        a.store(partial.value, a.result(Op.SELECT, kind, better, value, old))
        a.store(place, a.result(Op.SELECT, a.u32, better, index, old_index))

    def _place(self, column: int, lane: int) -> int:
        """A word of shared memory: each column has one for every lane."""
        a = self._a
        while len(self._shared) <= column:
            self._shared.append(a.variable(Storage.WORKGROUP, a.array(a.u32, self._lanes)))
        return a.element(Storage.WORKGROUP, self._shared[column], lane)
