"""One kernel in the making: values are added to it as long as it can compute them.

A kernel reads what earlier steps stored. What it makes itself it can use again only where it made it: a reduction's result
in the same row, an elementwise value at the same coordinates. Anything else needs another kernel, and ``NotHereError`` says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from pie_edge.program.node_types import Element
from pie_edge.program.ops import Op
from pie_edge.sampling.dialects.elementwise import EXPRESSIONS
from pie_edge.sampling.dialects.indexing import ENTRIES, Coordinates, Shape, aligned, delinear, drawn_word, linear
from pie_edge.sampling.dialects.kernel import Combine, Kernel, Loop, Reduction, Store
from pie_edge.sampling.dialects.random import gumbel, uniform
from pie_edge.sampling.dialects.scalar import BOOL, U32, Builder, Leaf, Memory, Scalar
from pie_edge.sampling.dialects.view import View, kind

MAX_SCALARS = 6000
"""Expressions of one kernel: drivers take seconds to compile what is much larger."""
MAX_LOOPS = 16
"""Of one kernel, each after the reductions that it needs."""

_COMBINES: Mapping[str, Combine] = {
    "reduce_max": Combine.MAX,
    "reduce_min": Combine.MIN,
    "reduce_sum": Combine.SUM,
    "reduce_any": Combine.MAX,
    "reduce_all": Combine.MIN,
    "reduce_argmax": Combine.ARGMAX,
    "reduce_argmin": Combine.ARGMIN,
    "gumbel_max": Combine.ARGMAX,
}


class NotHereError(Exception):
    """This kernel can't compute the value: it needs one that is made by a later step, or elsewhere in this one."""


@dataclass(frozen=True, slots=True)
class Domain:
    """What a kernel runs over: the rows of a pass, and the elements of each. Without an ``axis`` there is one row a pass,
    and each loop has an extent of its own.

    ``others`` are the axes that make up the rows; those of a reduction along the last axis are told by their number alone.
    """

    others: Shape = ()
    axis: int | None = None
    extent: int = 0

    @property
    def rows(self) -> int:
        return prod(self.others)

    @staticmethod
    def of_reduction(shape: Shape, axis: int) -> Domain:
        """``axis`` is negative."""
        place = len(shape) + axis
        others = (*shape[:place], *shape[place + 1 :])
        return Domain(others if axis != -1 else (prod(others),), axis, shape[place])

    def holds(self, shape: Shape) -> bool:
        """Whether the elements of a tensor are those of the domain, in the same order."""
        return self.axis == -1 and bool(shape) and shape[-1] == self.extent and prod(shape[:-1]) == self.rows


@dataclass(eq=False)
class Group:
    """Stores and reductions of one kernel, by the loop that they belong to."""

    view: View
    domain: Domain
    number: int
    """Of the step that it will be."""
    steps: Mapping[str, int]
    """The step that each stored value is made by, this one's included."""
    builder: Builder = field(default_factory=Builder)
    _known: dict[tuple[str, Coordinates], Scalar] = field(default_factory=dict)
    _reductions: list[tuple[int, Reduction]] = field(default_factory=list)
    _stores: list[tuple[tuple[int, int] | None, str, Store]] = field(default_factory=list)
    """By stage and extent of its loop, or by None if it is made once a row."""

    # Entries of values.

    def shape(self, name: str) -> Shape:
        return self.view.shape(name)

    def element(self, name: str) -> Element:
        return self.view.element(name)

    def given(self, name: str, offset: Scalar) -> Scalar:
        return self.builder.load(Memory.INPUTS, U32, offset + self.builder.start(name))

    def at(self, name: str, coordinates: Coordinates) -> Scalar:
        """Raises NotHereError."""
        found = self._known.get((name, coordinates))
        if found is None:
            found = self._known[name, coordinates] = self._entry(name, coordinates)
        return found

    def _entry(self, name: str, coordinates: Coordinates) -> Scalar:
        if self.view.is_given(name):
            return self._input(name, coordinates)
        step = self.steps.get(name)
        if step is None:
            return self._made(name, coordinates)
        if step >= self.number:
            raise NotHereError
        return self.builder.load(self.view.memory(name), self.element(name), self._offset(name, coordinates))

    def _made(self, name: str, coordinates: Coordinates) -> Scalar:
        op = self.view.producers[name]
        entry = ENTRIES.get(kind(op))
        if entry is not None:
            return entry(self, op, coordinates)
        operands = (self.at(operand, aligned(coordinates, self.shape(operand))) for operand in op.inputs)
        return EXPRESSIONS[kind(op)](*operands)

    def _input(self, name: str, coordinates: Coordinates) -> Scalar:
        """An entry of a parameter; bools are bytes there."""
        number = self.builder.leaf(Leaf.PASS) * self.view.size(name) + linear(
            coordinates, self.shape(name), self.builder
        )
        if self.element(name) is not BOOL:
            return self.builder.load(Memory.INPUTS, self.element(name), number + self.builder.start(name))
        word = self.given(name, number >> 2)
        return ((word >> ((number & 3) << 3)) & 0xFF).differs(0)

    def _offset(self, name: str, coordinates: Coordinates) -> Scalar:
        number = self.builder.leaf(Leaf.PASS if self.view.is_output(name) else Leaf.SLOT)
        entry = linear(coordinates, self.shape(name), self.builder)
        return number * self.view.size(name) + self.builder.start(name) + entry

    def _store(self, name: str, coordinates: Coordinates, value: Scalar) -> Store:
        return Store(self.view.memory(name), self._offset(name, coordinates), value)

    # Adding values. Each raises NotHereError if this kernel can't make it, and then nothing has changed.

    def add_reduction(self, op: Op) -> None:
        self._check_size()
        name, x = op.outputs[0], op.inputs[0]
        axis = op.integer("axis") if kind(op) != "gumbel_max" else -1
        place = len(self.shape(x)) + axis
        row = self._row(self.shape(x)[:place] + self.shape(x)[place + 1 :])
        index = self.builder.leaf(Leaf.INDEX, self.domain.extent)
        combine, value, condition = self._reduced(op, (*row[:place], index, *row[place:]))
        result = self._result(combine, value, condition)
        if self.element(name) is BOOL:
            result = result.differs(0)
        kept = (*row[:place], self.builder.constant(U32, 0), *row[place:]) if len(self.shape(name)) > len(row) else row
        self._known[name, kept] = result
        self._stores.append((None, name, self._store(name, kept, result)))

    def _result(self, combine: Combine, value: Scalar, condition: Scalar | None) -> Scalar:
        """What a reduction gives; one that was made before is not made again."""
        for stage, made in self._reductions:
            if (made.combine, made.value, made.condition) == (combine, value, condition):
                return self.builder.reduced(made.number, made.result, stage + 1)
        stage = self._in_loop(max(value.stage, condition.stage if condition else 0))
        reduction = Reduction(len(self._reductions), combine, value, condition)
        self._reductions.append((stage, reduction))
        return self.builder.reduced(reduction.number, reduction.result, stage + 1)

    def _reduced(self, op: Op, coordinates: Coordinates) -> tuple[Combine, Scalar, Scalar | None]:
        """What a reduction brings together, and which entries it leaves out."""
        x = self.at(op.inputs[0], coordinates)
        if x.element is BOOL:
            x = x.where(self.builder.constant(U32, 1), 0)
        if kind(op) != "gumbel_max":
            return _COMBINES[kind(op)], x, None
        # Nothing lifts an entry of −inf: its noise needn't be drawn.
        noise = gumbel(uniform(drawn_word(self, op, coordinates, self.shape(op.inputs[0]))))
        return Combine.ARGMAX, x + noise, x > float("-inf")

    def add_value(self, name: str) -> None:
        """An elementwise value: with the domain's elements, or else once a row."""
        self._check_size()
        shape = self.shape(name)
        if self.domain.axis is None:
            extent = prod(shape)
            coordinates, once = delinear(self.builder.leaf(Leaf.INDEX, extent), shape), False
        elif self.domain.holds(shape):
            extent = self.domain.extent
            index = self.builder.leaf(Leaf.INDEX, extent)
            coordinates, once = (*self._row(shape[:-1]), index), False
        elif prod(shape) == self.domain.rows:
            extent, coordinates, once = 0, self._row(shape), True
        else:
            raise NotHereError
        value = self._made(name, coordinates)
        loop = None if once else (self._in_loop(value.stage), extent)
        self._known[name, coordinates] = value
        self._stores.append((loop, name, self._store(name, coordinates, value)))

    def _row(self, shape: Shape) -> Coordinates:
        if self.domain.axis not in (None, -1) and shape != self.domain.others:
            # Rows along an inner axis are numbered by their own axes: another shape's entries are others.
            raise NotHereError
        return delinear(self.builder.leaf(Leaf.ROW, self.domain.rows), shape)

    def _in_loop(self, stage: int) -> int:
        if stage >= MAX_LOOPS:
            raise NotHereError
        return stage

    def _check_size(self) -> None:
        if len(self.builder) > MAX_SCALARS:
            raise NotHereError

    # The finished kernel.

    @property
    def stored(self) -> list[str]:
        return [name for _, name, _ in self._stores]

    def kernel(self, wanted: set[str]) -> tuple[Kernel, set[str]]:
        """The kernel that stores those of its values that are ``wanted``, and the values that it reads from memory."""
        stores = [(place, store) for place, name, store in self._stores if name in wanted]
        reads = Reads()
        for _, store in stores:
            reads.follow(store.value)
        loops: dict[tuple[int, int], tuple[list[Reduction], list[Store]]] = {}
        for stage, reduction in reversed(self._reductions):
            if reduction.number in reads.reductions:
                reads.follow(reduction.value)
                if reduction.condition is not None:
                    reads.follow(reduction.condition)
                loops.setdefault((stage, self.domain.extent), ([], []))[0].append(reduction)
        for place, store in stores:
            if place is not None:
                loops.setdefault(place, ([], []))[1].append(store)
        kernel = Kernel(
            self.domain.rows,
            tuple(Loop(extent, tuple(rs), tuple(ss)) for (_, extent), (rs, ss) in sorted(loops.items())),
            tuple(store for place, store in stores if place is None),
        )
        return kernel, reads.values


@dataclass(eq=False)
class Reads:
    """Values in memory and reductions that some expressions need."""

    values: set[str] = field(default_factory=set)
    reductions: set[int] = field(default_factory=set)
    _seen: set[int] = field(default_factory=set)

    def follow(self, scalar: Scalar) -> None:
        pending = [scalar]
        while pending:
            found = pending.pop()
            if id(found) in self._seen:
                continue
            self._seen.add(id(found))
            if found.op == "start":
                self.values.add(found.datum)
            elif found.op == "reduced":
                self.reductions.add(found.datum)
            pending += found.arguments
