"""The epilogue's fused kernels as WGSL: a workgroup takes a row, counted along y and then z.

Along x workgroups share a row's elements where nothing is reduced. The text is made when an epilogue is first used: WGSL is
source, so nothing else is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from pie_edge.backends.wgpu.epilogue_reductions import Reducer
from pie_edge.backends.wgpu.epilogue_text import TYPES, as_word, constant, from_word, written
from pie_edge.backends.wgpu.shader import Shader
from pie_edge.backends.wgpu.templates import expand
from pie_edge.sampling.dialects.kernel import Kernel, Loop, Reduction, Store
from pie_edge.sampling.dialects.scalar import Level, Scalar


def kernel_shader(name: str, kernel: Kernel, starts: Mapping[str, int], counts: int, lanes: int) -> Shader:
    """``starts`` has the word where each value begins in its memory, ``counts`` that of the number of passes."""
    return Shader(name, _Writer(kernel, starts, counts, lanes).text())


class _Writer:
    def __init__(self, kernel: Kernel, starts: Mapping[str, int], counts: int, lanes: int) -> None:
        self._kernel = kernel
        self._starts = starts
        self._counts = counts
        self._lanes = lanes
        self._lines: list[str] = []
        self._depth = 1
        self._known: dict[Scalar, str] = {}
        self._reduced: dict[int, str] = {}
        self._reducer = Reducer(self.line, lanes)

    def text(self) -> str:
        kernel = self._kernel
        for loop in kernel.loops:
            self._loop(loop)
        if kernel.stores:
            with self.block("if (lane == 0u)"):
                self._store(kernel.stores)
        head = expand("fused", {"LOCAL": self._lanes, "COUNTS": self._counts, "ROWS": kernel.rows, "LOGITS": "u32"})
        return "\n".join([head, *self._reducer.declarations(), *_ENTRY, *self._lines, "}"]) + "\n"

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

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
        first, step = "lane", f"{self._lanes}u"
        if not self._kernel.reduces:
            first, step = f"workgroup.x * {step} + lane", f"workgroups.x * {step}"
        with self.block(f"for (var index = {first}; index < {loop.extent}u; index += {step})"):
            for partial in sorted(partials, key=lambda partial: partial.reduction.condition is not None):
                condition = partial.reduction.condition
                if condition is None:
                    self._reducer.take(partial, self.value(partial.reduction.value), "index")
                    continue
                with self.block(f"if ({self.value(condition)})"):
                    self._reducer.take(partial, self.value(partial.reduction.value), "index")
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
                found = constant(scalar.element, scalar.datum)
                if not found.startswith("float_of"):
                    return found
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
        self.line(f"let v{scalar.number}: {TYPES[scalar.element]} = {found};")
        return f"v{scalar.number}"


_LEAVES = {"slot": "slot", "pass": "pass_", "row": "row", "index": "index", "hidden": "p.zero"}
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
