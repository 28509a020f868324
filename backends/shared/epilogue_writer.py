"""The epilogue's fused kernels as text in a language like C: a workgroup takes a row, counted along y and then z.

Along x workgroups share a row's elements where nothing is reduced. The text is made when an epilogue is first used.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

from pie_edge.backends.shared.epilogue_dialect import Dialect, Partial
from pie_edge.backends.shared.epilogue_expressions import needed, roots
from pie_edge.sampling.dialects.kernel import Kernel, Loop, Reduction, Store
from pie_edge.sampling.dialects.scalar import Level, Scalar


class Reducer(ABC):
    """Reductions of one kernel of so many lanes, written by ``line``."""

    def __init__(self, line: Callable[[str], None], lanes: int) -> None:
        self._line = line
        self._lanes = lanes

    @abstractmethod
    def begin(self, reduction: Reduction) -> Partial: ...

    @abstractmethod
    def take(self, partial: Partial, value: str, index: str = "index") -> None:
        """Bring in one more element, whose index is larger than those before."""

    @abstractmethod
    def finish(self, partials: Sequence[Partial]) -> dict[int, str]:
        """Bring the lanes' values together: every lane has the results, whose names come by reduction."""


ReducerT = TypeVar("ReducerT", bound=Reducer)


class Writer(ABC, Generic[ReducerT]):
    """One kernel. ``starts`` has the word where each value begins in its memory."""

    dialect: Dialect
    indent: str
    """Of a line within a block."""

    def __init__(self, kernel: Kernel, starts: Mapping[str, int], lanes: int) -> None:
        self._kernel = kernel
        self._starts = starts
        self._lanes = lanes
        self._lines: list[str] = []
        self._depth = 1
        self._known: dict[Scalar, str] = {}
        self._reduced: dict[int, str] = {}
        self._reducer = self._reductions()

    @abstractmethod
    def _reductions(self) -> ReducerT: ...

    @abstractmethod
    def text(self) -> str:
        """The whole kernel, with ``rows`` in its midst."""

    def rows(self) -> list[str]:
        """What is done for a row, once its ``leaves`` are there."""
        for loop in self._kernel.loops:
            self._loop(loop)
        if self._kernel.stores:
            with self._block(f"if ({self.dialect.lane} == 0u)"):
                self._store(self._kernel.stores)
        return self._lines

    def line(self, text: str) -> None:
        self._lines.append(self.indent * self._depth + text)

    @contextmanager
    def _block(self, head: str) -> Iterator[None]:
        """What is computed inside can't be used after it."""
        outside = dict(self._known)
        self.line(head + " {")
        self._depth += 1
        yield
        self._depth -= 1
        self.line("}")
        self._known = outside

    def _value(self, scalar: Scalar) -> str:
        self._compute(needed((scalar,)))
        return self._known[scalar]

    def _loop(self, loop: Loop) -> None:
        dialect = self.dialect
        partials = [self._reducer.begin(reduction) for reduction in loop.reductions]
        # What doesn't change from element to element is computed before the loop.
        self._compute(scalar for scalar in needed(roots(loop)) if scalar.level is not Level.ELEMENT)
        first, step = dialect.lane, f"{self._lanes}u"
        if not self._kernel.reduces:
            first, step = f"{dialect.column} * {step} + {first}", f"{dialect.columns} * {step}"
        with self._block(dialect.loop.format(first=first, extent=f"{loop.extent}u", step=step)):
            for partial in sorted(partials, key=lambda partial: partial.reduction.condition is not None):
                self._take(partial)
            self._store(loop.stores)
        self._reduced |= self._reducer.finish(partials)

    def _take(self, partial: Partial) -> None:
        reduction = partial.reduction
        if reduction.condition is None:
            self._reducer.take(partial, self._value(reduction.value))
            return
        with self._block(f"if ({self._value(reduction.condition)})"):
            self._reducer.take(partial, self._value(reduction.value))

    def _store(self, stores: Iterable[Store]) -> None:
        for store in stores:
            word = self.dialect.as_word(self._value(store.value), store.value.element)
            self.line(f"{store.memory.value}[{self._value(store.offset)}] = {word};")

    def _compute(self, scalars: Iterable[Scalar]) -> None:
        """In order: arguments come before what uses them."""
        for scalar in scalars:
            if scalar not in self._known:
                self._known[scalar] = self._named(scalar)

    def _named(self, scalar: Scalar) -> str:
        dialect = self.dialect
        arguments = [self._known[argument] for argument in scalar.arguments]
        match scalar.op:
            case "constant":
                found = dialect.constant(scalar.element, scalar.datum)
                if dialect.is_plain(found):
                    return found
            case "start":
                return f"{self._starts[scalar.datum]}u"
            case "reduced":
                return self._reduced[scalar.datum]
            case "load":
                found = dialect.from_word(f"{scalar.datum.value}[{arguments[0]}]", scalar.element)
            case _ if not arguments:
                return dialect.leaves[scalar.op]
            case _:
                found = dialect.written(scalar, arguments)
        name = f"v{scalar.number}"
        self.line(dialect.declared.format(name=name, type=dialect.types[scalar.element], value=found))
        return name
