"""A Plan run in NumPy, scalar operation by scalar operation: what a backend's kernels must do, with no device.

Algorithms of their own come from the reference; everything else is the planner's and the expressions' own work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pie_edge.program.node_reference import MEANINGS, Site
from pie_edge.program.node_types import Element
from pie_edge.program.nodes import PREFIX
from pie_edge.program.ops import Program, Role, Value
from pie_edge.sampling.dialects.kernel import Call, Combine, Kernel, Loop, Place, Plan, Reduction, Store
from pie_edge.sampling.dialects.scalar import Memory, Scalar

Array = Any
NUMPY = {Element.F32: np.float32, Element.I32: np.int32, Element.U32: np.uint32, Element.BOOL: np.bool_}

BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "mod": np.mod,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": np.left_shift,
    "shr": np.right_shift,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}
UNARY = {
    "neg": np.negative,
    "abs": np.abs,
    "not": np.invert,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "sqrt": np.sqrt,
}


def evaluate(scalar: Scalar, **leaves: Array) -> Array:
    """An expression's value for leaves of its own (``Builder.make("x", F32)``), over arrays."""
    with np.errstate(all="ignore"):
        return _Values(None, leaves, {}).of(scalar)


def block(values: Sequence[Value]) -> tuple[dict[str, int], int]:
    """Where each value begins in a block that holds them all, with a gap between any two, and the block's size in words."""
    starts, words = {}, 3
    for value in values:
        starts[value.name] = words
        words += -(-value.nbytes // 4) + 1
    return starts, words


def run_plan(plan: Plan, program: Program, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of the true passes, as ``run_nodes`` gives them."""
    machine = _Machine(plan, program, arrays)
    passes = int(arrays["counts"][0])
    with np.errstate(all="ignore"):
        for first in range(0, passes, plan.slots):
            machine.round(first, min(plan.slots, passes - first))
    packings = {packing.name: packing for packing in plan.packings}
    found = {}
    for value in program.by_role(Role.OUTPUT):
        if value.name in packings:
            words = machine.memories[Memory.ARENA][packings[value.name].start :][: value.size] != 0
        else:
            words = machine.memories[Memory.OUTPUTS][machine.starts[value.name] :][: value.size]
            words = words.view(NUMPY[Element(value.dtype.value)])
        found[value.name] = words.reshape(value.shape)[:passes]
    return found


def _words_of(numbers: Any) -> Array:
    return np.ascontiguousarray(numbers, np.float32).reshape(-1).view(np.uint32)


class _Machine:
    def __init__(self, plan: Plan, program: Program, arrays: Mapping[str, Array]) -> None:
        self.plan = plan
        inputs, input_words = block(program.by_role(Role.INPUT))
        outputs, output_words = block(program.by_role(Role.OUTPUT))
        self.starts = {**inputs, **outputs, **plan.starts}
        # What nothing has written must never be read: a pattern that no test's answer holds.
        self.memories = {
            Memory.LOGITS: _words_of(arrays["logits"]),
            Memory.HIDDEN: _words_of(arrays.get("hidden", ())),
            Memory.INPUTS: np.full(input_words, 0xFFC0FFEE, np.uint32),
            Memory.OUTPUTS: np.full(output_words, 0xFFC0FFEE, np.uint32),
            Memory.ARENA: np.full(plan.words, 0xFFC0FFEE, np.uint32),
        }
        octets = self.memories[Memory.INPUTS].view(np.uint8)
        for name, start in inputs.items():
            raw = np.ascontiguousarray(arrays[name]).view(np.uint8).reshape(-1)
            octets[4 * start :][: len(raw)] = raw

    def round(self, first: int, passes: int) -> None:
        for step in self.plan.steps:
            if isinstance(step, Kernel):
                for slot in range(passes):
                    for row in range(step.rows):
                        self._row(step, {"pass": first + slot, "slot": slot, "row": row})
            else:
                self._call(step, first, passes)

    def _row(self, kernel: Kernel, leaves: dict[str, int]) -> None:
        leaf: dict[str, Array] = {name: np.uint32(value) for name, value in leaves.items()}
        reduced: dict[int, Array] = {}
        writes: list[tuple[Memory, Array, Array]] = []
        for loop in kernel.loops:
            values = _Values(self, leaf | {"index": np.arange(loop.extent, dtype=np.uint32)}, reduced)
            for reduction in loop.reductions:
                reduced[reduction.number] = _reduce(reduction, values, loop)
            writes += [_written(store, values, loop.extent) for store in loop.stores]
        values = _Values(self, leaf, reduced)
        writes += [_written(store, values, 1) for store in kernel.stores]
        # A kernel must not read what it writes: other workgroups may be ahead or behind.
        for memory, offsets, words in writes:
            self.memories[memory][offsets] = words

    def _call(self, call: Call, first: int, passes: int) -> None:
        count = len(call.operands)
        operands = [
            self._read(place, shape, element, first, passes)
            for place, shape, element in zip(call.operands, call.shapes[:count], call.elements[:count], strict=True)
        ]
        site = Site(call.op, call.shapes[count], NUMPY[call.elements[count]], passes)
        found = MEANINGS[call.op.kind.removeprefix(PREFIX)](site, *operands)
        results = found if isinstance(found, tuple) else (found,)
        for place, element, result in zip(call.results, call.elements[count:], results, strict=True):
            words = np.asarray(result, NUMPY[element])
            words = words.astype(np.uint32) if element is Element.BOOL else words.view(np.uint32)
            self._words(place, first, passes)[:] = words.reshape(-1)

    def _read(self, place: Place, shape: tuple[int, ...], element: Element, first: int, passes: int) -> Array:
        words = self._words(place, first, passes)
        typed = words != 0 if element is Element.BOOL else words.view(NUMPY[element])
        return typed.reshape(passes, *shape)

    def _words(self, place: Place, first: int, passes: int) -> Array:
        begin = self.starts[place.name] + (first * place.size if place.whole else 0)
        return self.memories[place.memory][begin : begin + passes * place.size]


def _written(store: Store, values: _Values, extent: int) -> tuple[Memory, Array, Array]:
    value = np.broadcast_to(values.of(store.value), (extent,))
    words = value.astype(np.uint32) if value.dtype == np.bool_ else np.ascontiguousarray(value).view(np.uint32)
    offsets = np.broadcast_to(values.of(store.offset), (extent,))
    assert len(np.unique(offsets)) == extent, "two elements are stored at one place"
    return store.memory, offsets, words


def _reduce(reduction: Reduction, values: _Values, loop: Loop) -> Array:
    entries = np.broadcast_to(values.of(reduction.value), (loop.extent,))
    places = np.arange(loop.extent, dtype=np.uint32)
    if reduction.condition is not None:
        kept = np.broadcast_to(values.of(reduction.condition), (loop.extent,))
        entries, places = entries[kept], places[kept]
        if not len(entries):
            return np.uint32(0)
    match reduction.combine:
        case Combine.MAX:
            return entries.max()
        case Combine.MIN:
            return entries.min()
        case Combine.SUM:
            return entries.sum(dtype=entries.dtype)
        case Combine.ARGMAX:
            return places[np.argmax(entries)]
        case Combine.ARGMIN:
            return places[np.argmin(entries)]


class _Values:
    """Expressions evaluated for all elements of a loop at once."""

    def __init__(self, machine: _Machine | None, leaves: Mapping[str, Array], reduced: Mapping[int, Array]) -> None:
        self._machine = machine
        self._leaves = leaves
        self._reduced = reduced
        self._known: dict[int, Array] = {}

    def of(self, scalar: Scalar) -> Array:
        if id(scalar) not in self._known:
            value = self._computed(scalar)
            assert value.dtype == NUMPY[scalar.element], f"{scalar} gave {value.dtype}"
            if scalar.element is Element.U32 and scalar.op not in ("reduced",):
                assert int(np.max(value)) < scalar.below, f"{scalar} exceeds its bound {scalar.below}"
            self._known[id(scalar)] = value
        return self._known[id(scalar)]

    def _computed(self, scalar: Scalar) -> Array:
        arguments = [self.of(argument) for argument in scalar.arguments]
        kind = NUMPY[scalar.element]
        match scalar.op:
            case "constant":
                return np.asarray(scalar.datum, kind)
            case "start" if self._machine:
                return np.asarray(self._machine.starts[scalar.datum], kind)
            case "hidden":
                return np.asarray(0, kind)
            case "reduced":
                return np.asarray(self._reduced[scalar.datum], kind)
            case "load" if self._machine:
                return np.asarray(self._machine.memories[scalar.datum][arguments[0]]).view(kind)
            case "div":
                return np.asarray(np.divide(*arguments) if kind is np.float32 else np.floor_divide(*arguments))
            case "select":
                return np.where(*arguments)
            case "bits":
                return np.asarray(arguments[0]).view(kind)
            case "convert":
                return np.asarray(arguments[0]).astype(kind)
            case name if name in BINARY:
                return np.asarray(BINARY[name](*arguments))
            case name if name in UNARY:
                return np.asarray(UNARY[name](*arguments))
            case name:
                return self._leaves[name]
