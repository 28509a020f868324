"""The epilogue's fused kernels as SPIR-V: a workgroup takes a row, counted along y and then z.

Along x workgroups share a row's elements where nothing is reduced. Bindings are those of ``MEMORIES``, and the push
constant is the number of the round's first pass.
"""

from __future__ import annotations

from collections.abc import Mapping

from pie_edge.backends.shared.epilogue_expressions import needed, roots
from pie_edge.backends.vulkan.epilogue_expressions import Expressions
from pie_edge.backends.vulkan.epilogue_reductions import Partial, Reducer
from pie_edge.backends.vulkan.spirv import Assembler, BuiltIn, Glsl, Op, Storage
from pie_edge.sampling.dialects.kernel import Kernel, Loop
from pie_edge.sampling.dialects.scalar import Level


def assemble(kernel: Kernel, starts: Mapping[str, int], slots: int, lanes: int, preserve: bool) -> bytes:
    """The module of a kernel. ``starts`` has the word where each value begins in its memory; ``slots`` passes make a round.

    ``preserve`` asks the driver to keep infinities, NaNs and signed zeros; it must be able to.
    """
    writer = _Writer(kernel, starts, lanes)
    writer.rows(slots)
    return writer.assembler.module(lanes, preserve)


class _Writer:
    def __init__(self, kernel: Kernel, starts: Mapping[str, int], lanes: int) -> None:
        self._kernel = kernel
        self._lanes = lanes
        self.assembler = a = Assembler()
        self._e = Expressions(a, starts)
        self._push = a.variable(Storage.PUSH_CONSTANT, a.words_struct(1))
        self._group, self._groups = a.built_in(BuiltIn.WORKGROUP_ID), a.built_in(BuiltIn.NUM_WORKGROUPS)
        self._lane = a.component(a.built_in(BuiltIn.LOCAL_INVOCATION_ID), 0)
        self._reducer = Reducer(self._e, self._lane, lanes)

    def rows(self, slots: int) -> None:
        a = self.assembler
        first = a.load(a.element(Storage.PUSH_CONSTANT, self._push, a.constant_u32(0)), a.u32)
        count = a.constant_u32(self._kernel.rows)
        rows = a.result(Op.I_MUL, a.u32, self._passes(first, slots), count)
        along = a.result(Op.I_MUL, a.u32, a.component(self._group, 2), a.component(self._groups, 1))
        row = a.result(Op.I_ADD, a.u32, along, a.component(self._group, 1))
        with a.branch_if(a.result(Op.U_LESS, a.bool, row, rows)):
            slot = a.result(Op.U_DIV, a.u32, row, count)
            self._e.leaves |= {
                "slot": slot,
                "pass": a.result(Op.I_ADD, a.u32, slot, first),
                "row": a.result(Op.U_MOD, a.u32, row, count),
            }
            for loop in self._kernel.loops:
                self._loop(loop)
            self._once()

    def _passes(self, first: int, slots: int) -> int:
        """True passes of this round: none if the call's number ends before it."""
        a = self.assembler
        passes = self._e.input_word("counts")
        after = a.result(Op.I_SUB, a.u32, passes, first)
        some = a.result(Op.U_GREATER, a.bool, passes, first)
        return a.extended(
            Glsl.U_MIN, a.u32, a.result(Op.SELECT, a.u32, some, after, a.constant_u32(0)), a.constant_u32(slots)
        )

    def _loop(self, loop: Loop) -> None:
        a = self.assembler
        partials = [self._reducer.begin(reduction) for reduction in loop.reductions]
        begin, step = self._lane, a.constant_u32(self._lanes)
        if not self._kernel.reduces:
            own = a.result(Op.I_MUL, a.u32, a.component(self._group, 0), step)
            begin = a.result(Op.I_ADD, a.u32, own, self._lane)
            step = a.result(Op.I_MUL, a.u32, a.component(self._groups, 0), step)
        # What doesn't change from element to element is computed before the loop.
        self._e.compute(scalar for scalar in needed(roots(loop)) if scalar.level is not Level.ELEMENT)
        with a.loop(begin, a.constant_u32(loop.extent), step) as index, self._e.scope():
            self._e.leaves["index"] = index
            for partial in sorted(partials, key=lambda partial: partial.reduction.condition is not None):
                self._take(partial, index)
            self._e.store(loop.stores)
        self._reducer.finish(partials)

    def _take(self, partial: Partial, index: int) -> None:
        reduction = partial.reduction
        if reduction.condition is None:
            self._reducer.take(partial, self._e.value(reduction.value), index)
            return
        with self.assembler.branch_if(self._e.value(reduction.condition)), self._e.scope():
            self._reducer.take(partial, self._e.value(reduction.value), index)

    def _once(self) -> None:
        """What is stored once a row: by its first lane."""
        a = self.assembler
        if self._kernel.stores:
            with a.branch_if(a.result(Op.I_EQUAL, a.bool, self._lane, a.constant_u32(0))), self._e.scope():
                self._e.store(self._kernel.stores)
