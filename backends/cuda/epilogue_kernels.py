"""The epilogue's fused kernels as CUDA C++: a block takes a row, counted along y and then z.

Along x blocks share a row's elements where nothing is reduced. The text is made when an epilogue is first used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from pie_edge.backends.cuda.epilogue_reductions import Reducer
from pie_edge.backends.cuda.epilogue_text import TYPES, as_word, constant, from_word, written
from pie_edge.sampling.dialects.kernel import Kernel, Loop, Reduction, Store
from pie_edge.sampling.dialects.scalar import Level, Memory, Scalar


def kernel_text(kernel: Kernel, starts: Mapping[str, int], threads: int) -> str:
    """``starts`` has the word where each value begins in its memory."""
    return _Writer(kernel, starts, threads).text()


class _Writer:
    def __init__(self, kernel: Kernel, starts: Mapping[str, int], threads: int) -> None:
        self._kernel = kernel
        self._starts = starts
        self._threads = threads
        self._lines: list[str] = []
        self._depth = 1
        self._known: dict[Scalar, str] = {}
        self._reduced: dict[int, str] = {}
        self._reducer = Reducer(self.line)

    def text(self) -> str:
        kernel = self._kernel
        if kernel.reduces:
            self.line(f"__shared__ u32 room[{2 * (self._threads // 32)}];")
        self.line("u32 along = round.row();")
        self.line("if (along == ~0u) return;")
        self.line(f"u32 slot = along / {kernel.rows}u, pass = slot + round.first, row = along % {kernel.rows}u;")
        for loop in kernel.loops:
            self._loop(loop)
        if kernel.stores:
            with self.block("if (threadIdx.x == 0)"):
                self._store(kernel.stores)
        memories = ", ".join(f"{'const ' * (m in _READ)}u32* {m.value}" for m in Memory)
        head = f'extern "C" __global__ void __launch_bounds__({self._threads}) fused(Round round, {memories}) {{'
        return "\n".join(['#include "fused.cuh"', "", head, *self._lines, "}"]) + "\n"

    def line(self, text: str) -> None:
        self._lines.append("  " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """What is computed inside can't be used after it."""
        outside = dict(self._known)
        self.line(head + " {")
        self._depth += 1
        yield
        self._depth -= 1
        self.line("}")
        self._known = outside

    def value(self, scalar: Scalar) -> str:
        self._compute(needed((scalar,)))
        return self._known[scalar]

    def _loop(self, loop: Loop) -> None:
        partials = [self._reducer.begin(reduction) for reduction in loop.reductions]
        # What doesn't change from element to element is computed before the loop.
        self._compute(scalar for scalar in needed(_roots(loop)) if scalar.level is not Level.ELEMENT)
        first, step = "threadIdx.x", f"{self._threads}u"
        if not self._kernel.reduces:
            first, step = f"blockIdx.x * {step} + threadIdx.x", f"gridDim.x * {step}"
        with self.block(f"for (u32 index = {first}; index < {loop.extent}u; index += {step})"):
            for partial in sorted(partials, key=lambda partial: partial.reduction.condition is not None):
                condition = partial.reduction.condition
                if condition is None:
                    self._reducer.take(partial, self.value(partial.reduction.value))
                    continue
                with self.block(f"if ({self.value(condition)})"):
                    self._reducer.take(partial, self.value(partial.reduction.value))
            self._store(loop.stores)
        self._reduced |= self._reducer.finish(partials)

    def _store(self, stores: Iterable[Store]) -> None:
        for store in stores:
            word = as_word(self.value(store.value), store.value.element)
            self.line(f"{store.memory.value}[{self.value(store.offset)}] = {word};")

    def _compute(self, scalars: Iterable[Scalar]) -> None:
        """In order: arguments come before what uses them."""
        for scalar in scalars:
            if scalar not in self._known:
                self._known[scalar] = self._named(scalar)

    def _named(self, scalar: Scalar) -> str:
        match scalar.op:
            case "constant":
                return constant(scalar.element, scalar.datum)
            case "start":
                return f"{self._starts[scalar.datum]}u"
            case "reduced":
                return self._reduced[scalar.datum]
            case "load":
                found = from_word(f"{scalar.datum.value}[{self._known[scalar.arguments[0]]}]", scalar.element)
            case _ if not scalar.arguments:
                return _LEAVES[scalar.op]
            case _:
                found = written(scalar, [self._known[argument] for argument in scalar.arguments])
        self.line(f"{TYPES[scalar.element]} v{scalar.number} = {found};")
        return f"v{scalar.number}"


_READ = (Memory.LOGITS, Memory.INPUTS)
_LEAVES = {"slot": "slot", "pass": "pass", "row": "row", "index": "index", "hidden": "0u"}


def needed(roots: Iterable[Scalar]) -> list[Scalar]:
    """Everything that the roots are made of, arguments first."""
    found: dict[int, Scalar] = {}
    pending = list(roots)
    while pending:
        scalar = pending.pop()
        if scalar.number not in found:
            found[scalar.number] = scalar
            pending += scalar.arguments
    return [found[number] for number in sorted(found)]


def _of(reduction: Reduction) -> Iterator[Scalar]:
    yield reduction.value
    if reduction.condition is not None:
        yield reduction.condition


def _roots(loop: Loop) -> Iterator[Scalar]:
    for reduction in loop.reductions:
        yield from _of(reduction)
    for store in loop.stores:
        yield from (store.offset, store.value)
