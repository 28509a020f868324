"""The planner's fused kernels in Metal's language: bodies for ``launch.Kernel``, with what they read and write.

A kernel of MLX's gives new arrays and can't write the ones it is given. So every value that a kernel stores is an array of its
own, where other APIs have one arena for all: a value begins at its array's first word.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pie_edge.backends.metal.launch import Kernel
from pie_edge.backends.shared.epilogue_cpp import CppReducer
from pie_edge.backends.shared.epilogue_dialect import Dialect, Partial
from pie_edge.backends.shared.epilogue_reductions import comparison
from pie_edge.backends.shared.epilogue_writer import Writer
from pie_edge.sampling.dialects import kernel as plans
from pie_edge.sampling.dialects.kernel import Store
from pie_edge.sampling.dialects.scalar import F32, I32, U32, Memory, Scalar

_SIGNS = {F32: "Float", I32: "Signed", U32: "Word"}

METAL = Dialect(
    float_type="float",
    as_float="as_type<float>({0})",
    as_bits="as_type<u32>({0})",
    signed="int({0})",
    unsigned="u32({0})",
    truth="u32({0})",
    select="({0} ? {1} : {2})",
    arithmetic={op: f"({{0}} {sign} {{1}})" for op, sign in (("add", "+"), ("sub", "-"), ("mul", "*"), ("div", "/"))},
    functions={"floor": "floor", "ceil": "ceil", "round": "rint", "sqrt": "metal::precise::sqrt"},
    conversions={
        (F32, I32): "u32(int({0}))",
        (F32, U32): "u32({0})",
        (I32, F32): "float(int({0}))",
        (U32, F32): "float({0})",
    },
    declared="{type} {name} = {value};",
    loop="for (u32 index = {first}; index < {extent}; index += {step})",
    leaves={"slot": "pass", "pass": "pass", "row": "row", "index": "index", "hidden": "zero"},
    lane="thread_position_in_threadgroup.x",
    column="threadgroup_position_in_grid.x",
    columns="threadgroups_per_grid.x",
    float_constant=lambda word: f"as_type<float>({word}u)",
)
"""Floats round once an operation: the header forbids the compiler to bring two together."""


class _Reducer(CppReducer):
    """See ``kernels/reduce.h``."""

    dialect = METAL

    def _summed(self, value: str) -> str:
        return f"reduce_sum({value}, {self._whole})"

    def _best(self, partial: Partial) -> str:
        order = {"gt": "Larger", "lt": "Smaller"}[comparison(partial.reduction)] + _SIGNS[partial.element]
        return f"reduce_best<{order}>({partial.value}, {partial.index}, {self._whole});"

    @property
    def _whole(self) -> str:
        return f"room, thread_index_in_simdgroup, simdgroup_index_in_threadgroup, {self._lanes // 32}u"


@dataclass(frozen=True)
class Written:
    """A kernel, which takes ``states`` by name, the inputs, and the values whose arrays it ``reads``, and those that it gives."""

    kernel: Kernel
    states: tuple[str, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]


def written(kernel: plans.Kernel, starts: Mapping[str, int], lanes: int) -> Written:
    """``starts`` has the word where each input begins."""
    return _Writer(kernel, starts, lanes).written()


@dataclass
class _Arrays:
    """Names of values in the text, in the order in which they were met."""

    letter: str
    met: dict[str, str] = field(default_factory=dict)

    def name(self, value: str) -> str:
        return self.met.setdefault(value, f"{self.letter}{len(self.met)}")


class _Writer(Writer[_Reducer]):
    dialect, indent = METAL, "  "

    def __init__(self, kernel: plans.Kernel, starts: Mapping[str, int], lanes: int) -> None:
        super().__init__(kernel, starts, lanes)
        self._reads, self._writes = _Arrays("from"), _Arrays("into")
        self._states: dict[str, None] = {}

    def _reductions(self) -> _Reducer:
        return _Reducer(self.line, self._lanes)

    def text(self) -> str:
        kernel, lines = self._kernel, self.rows()
        head = [f"threadgroup u32 room[{2 * max(self._lanes // 32, 1)}];"] if kernel.reduces else []
        head += [
            "u32 along = threadgroup_position_in_grid.y;",
            f"u32 pass = along / {kernel.rows}u, row = along % {kernel.rows}u, zero = inputs[{self._starts['counts']}u] >> 31;",
            f"if (pass >= inputs[{self._starts['counts']}u]) return;",
        ]
        return "\n".join([*(self.indent + line for line in head), *lines]) + "\n"

    def written(self) -> Written:
        body = self.text()
        inputs, outputs = (*self._states, "inputs", *self._reads.met.values()), tuple(self._writes.met.values())
        # By what it says: MLX compiles it once, whatever Programs and batch sizes have it.
        said = hashlib.sha256("\0".join((body, *inputs, *outputs)).encode()).hexdigest()
        made = Kernel(f"epilogue_{said[:16]}", inputs, outputs, ("words", "nodes"), body)
        return Written(made, tuple(self._states), tuple(self._reads.met), tuple(self._writes.met))

    def _store(self, stores: Iterable[Store]) -> None:
        for store in stores:
            word = METAL.as_word(self._value(store.value), store.value.element)
            array = self._writes.name(_beginning(store.offset))
            self.line(f"{array}[{self._value(store.offset)}] = {word};")

    def _named(self, scalar: Scalar) -> str:
        if scalar.op == "start":
            return f"{self._starts.get(scalar.datum, 0)}u"
        if scalar.op != "load":
            return super()._named(scalar)
        array, (offset,) = str(scalar.datum.value), scalar.arguments
        if scalar.datum in (Memory.LOGITS, Memory.HIDDEN):
            self._states[array] = None
        elif scalar.datum is not Memory.INPUTS:
            array = self._reads.name(_beginning(offset))
        found = METAL.from_word(f"{array}[{self._known[offset]}]", scalar.element)
        self.line(METAL.declared.format(name=f"v{scalar.number}", type=METAL.types[scalar.element], value=found))
        return f"v{scalar.number}"


def _beginning(offset: Scalar) -> str:
    """The value whose entry this is the place of."""
    pending = [offset]
    while pending:
        scalar = pending.pop()
        if scalar.op == "start":
            return str(scalar.datum)
        # An index that was itself read somewhere says nothing of where it leads.
        if scalar.op != "load":
            pending += scalar.arguments
    raise ValueError(f"{offset} is no value's")
