"""From a Program to instructions: each op with the argument struct of its kernel, and the temporaries that kernels need."""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pie_edge.backends.cpu import lower_experts
from pie_edge.backends.cpu.instructions import Argument, Instruction, Ref
from pie_edge.backends.cpu.lower_attention import attention, attention_mass, check_width
from pie_edge.backends.cpu.lower_linear import TILE, VECTOR_ROWS, matrix_format, prepared_row, product_scratch
from pie_edge.backends.cpu.lower_recurrent import ACTIVATIONS, gated_delta, short_conv, tail_append
from pie_edge.backends.cpu.weights import Weight
from pie_edge.errors import Unsupported
from pie_edge.program.encodings import Dense, DType
from pie_edge.program.ops import Op, Program, Role, Value
from pie_edge.program.step import HEADER_WORDS

CONSTANTS = "#constants"


@dataclass
class Lowering:
    """Instructions, and the temporaries they add to the Program's own. Made by ``lower``."""

    program: Program
    weights: Mapping[str, Weight]
    instructions: list[Instruction] = field(default_factory=list)
    temporaries: dict[str, Value] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    """A temporary that lies where a state lies."""
    constants: bytearray = field(default_factory=bytearray)
    sorted_rows: dict[tuple[str, str, int], str] = field(default_factory=dict)
    """What ``lower_experts`` prepared: by the rows, their order, and the group."""
    _counts: dict[str, Ref] = field(default_factory=dict)
    _prepared: dict[tuple[str, int], str] = field(default_factory=dict)
    _angles: dict[tuple[Any, ...], str] = field(default_factory=dict)

    def value(self, name: str) -> Value:
        return self.program.values[name]

    def temporary(self, name: str, nbytes: int) -> str:
        self.temporaries[name] = Value(name, Role.TEMP, DType.U8, (nbytes,))
        return name

    def constant(self, data: bytes) -> Ref:
        """Data that doesn't change, eight-byte aligned."""
        self.constants += bytes(-len(self.constants) % 8)
        offset = len(self.constants)
        self.constants += data
        return Ref(CONSTANTS, offset)

    def rows(self, name: str) -> Ref:
        """The word that holds a value's true number of rows."""
        if name not in self._counts:
            self._counts[name] = self._first_count(self.value(name))
        return self._counts[name]

    def emit(self, kernel: str, arguments: tuple[Argument, ...], op: Op, like: str | None, scratch: int = 0) -> None:
        """An instruction that reads the op's inputs and writes its outputs, which have as many rows as ``like``."""
        if like is not None:
            for name in op.outputs:
                self._counts.setdefault(name, self.rows(like))
        self.instructions.append(Instruction(kernel, arguments, op.inputs, op.outputs, scratch))

    def prepared(self, x: str, group: int) -> str:
        """The temporary with x prepared for weights of this group (0: dense): one for all that x meets."""
        key = (x, group)
        if key not in self._prepared:
            capacity, columns = self.value(x).shape
            slots = max(min(capacity, VECTOR_ROWS), -(-capacity // TILE))
            nbytes = slots * prepared_row(columns, group)
            name = self.temporary(f"#prepared{len(self._prepared)}", nbytes)
            kernel = "prepare_affine" if group else "prepare_dense"
            arguments = (Ref(x), Ref(name), self.rows(x), columns, group)
            self.instructions.append(Instruction(kernel, arguments, (x,), (name,)))
            self._prepared[key] = name
        return self._prepared[key]

    def angles(self, op: Op, positions: str, factors: str | None) -> str:
        """The temporary with cosines and sines for these frequencies at these positions."""
        rotary, base, scale = op.integer("rotary"), op.number("base"), op.number("scale")
        magnitude = op.number("magnitude")
        key = (positions, rotary, base, scale, magnitude, factors)
        if key not in self._angles:
            half = rotary // 2
            frequencies = [scale * base ** (-2.0 * i / rotary) for i in range(half)]
            table = self.constant(struct.pack(f"<{half}d", *frequencies))
            name = self.temporary(f"#angles{len(self._angles)}", self.value(positions).shape[0] * rotary * 4)
            reads = (positions,) if factors is None else (positions, factors)
            factor: Argument = 0 if factors is None else Ref(factors)
            arguments = (Ref(positions), table, factor, Ref(name), self.rows(positions), half, magnitude)
            self.instructions.append(Instruction("rope_angles", arguments, reads, (name,)))
            self._angles[key] = name
        return self._angles[key]

    def _first_count(self, value: Value) -> Ref:
        """Of a value that no op of the Program gives: the step's count of rows or samples, or all that it has room for."""
        counts = self.program.values.get("counts")
        if counts is not None and counts.shape == (HEADER_WORDS,):
            if value.name in ("sample_rows", "draw_keys"):
                return Ref("counts", 8)
            if value.role is Role.INPUT or value.shape[0] == self.value("token_src").shape[0]:
                return Ref("counts", 0)
        return self.constant(struct.pack("<I", value.shape[0]))


def lower(program: Program, weights: Mapping[str, Weight]) -> Lowering:
    """Raises Unsupported naming an op kind, dtype or shape that the kernels don't take."""
    lowering = Lowering(program, weights)
    _check_types(program)
    uses = Counter(name for op in program.ops for name in (*op.inputs, *op.outputs))
    producers = {name: op for op in program.ops for name in op.outputs}
    for op in program.ops:
        if op.kind == "store" and _fits_in_place(program, op, uses, producers):
            lowering.aliases[op.inputs[0]] = op.outputs[0]
    for op in program.ops:
        if op.kind not in _LOWERINGS:
            raise Unsupported(
                f"program {program.name} has an op {op.kind!r}; the cpu backend has {', '.join(sorted(KINDS))}. "
                "Expand the program to limits.kinds first"
            )
        if op.kind != "store" or op.inputs[0] not in lowering.aliases:
            _LOWERINGS[op.kind](lowering, op)
    return lowering


def _fits_in_place(program: Program, op: Op, uses: Counter[str], producers: Mapping[str, Op]) -> bool:
    """Whether the stored value can be computed where the state lies: nothing else uses it, or the state."""
    x, state = op.inputs[0], op.outputs[0]
    made_by = producers.get(x)
    return made_by is not None and made_by.kind == "linear" and uses[x] == 2 and uses[state] == 1


def _check_types(program: Program) -> None:
    for value in program.values.values():
        plain = value.encoding is None or isinstance(value.encoding, Dense)
        if value.role is not Role.WEIGHT and plain and value.dtype not in (DType.F32, DType.U32, DType.I32):
            raise Unsupported(
                f"program {program.name}: {value}; the cpu backend computes in f32 and keeps states in f32"
            )


def _embed(low: Lowering, op: Op) -> None:
    table, token_src, tokens = op.inputs
    weight = low.weights[table]
    form = matrix_format(low, table)
    arguments = (Ref(table), Ref(token_src), Ref(tokens), Ref(op.outputs[0]), low.rows(token_src))
    sizes = (weight.value.shape[1], weight.value.shape[0], low.value(tokens).size)
    low.emit("embed", (*arguments, *sizes, form.number, form.zero, op.number("scale")), op, token_src)


def _norm(low: Lowering, op: Op) -> None:
    fused = op.kind == "add_rms_norm"
    x, weight = op.inputs[0], op.inputs[-1]
    groups = 1 if fused else op.integer("groups")
    residual, total = (Ref(op.inputs[1]), Ref(op.outputs[0])) if fused else (0, 0)
    y = Ref(op.outputs[-1])
    width = low.value(x).shape[1] // groups
    arguments = (
        Ref(x),
        residual,
        Ref(weight),
        total,
        y,
        low.rows(x),
        width,
        groups,
        op.number("eps"),
        op.number("offset"),
    )
    low.emit(op.kind, arguments, op, x)


def _layer_norm(low: Lowering, op: Op) -> None:
    x, weight, *bias = op.inputs
    given: Argument = Ref(bias[0]) if bias else 0
    sizes = (low.rows(x), low.value(x).shape[1], op.number("eps"))
    low.emit(op.kind, (Ref(x), Ref(weight), given, Ref(op.outputs[0]), *sizes), op, x)


def _linear(low: Lowering, op: Op) -> None:
    x, weight = op.inputs[:2]
    form = matrix_format(low, weight)
    outputs, columns = low.value(weight).shape
    prepared = low.prepared(x, form.group if form.affine else 0)
    bias: Argument = Ref(op.inputs[2]) if len(op.inputs) > 2 else 0
    y = op.outputs[0]
    low.rows(x)
    arguments = (Ref(weight), Ref(prepared), bias, Ref(y), low.rows(x), outputs, columns, form.number, form.zero, 0)
    scratch = product_scratch(form, columns)
    kernel = "linear_affine" if form.affine else "linear_dense"
    low.emit(kernel, arguments, Op(op.kind, (prepared, *op.inputs[1:]), op.outputs), x, scratch)


def _adapter_linear(low: Lowering, op: Op) -> None:
    x, matrices, adapters, *base = op.inputs
    count, outputs, columns = low.value(matrices).shape
    given: Argument = Ref(base[0]) if base else 0
    arguments = (Ref(x), Ref(matrices), Ref(adapters), given, Ref(op.outputs[0]), low.rows(x), outputs, columns, count)
    low.emit(op.kind, arguments, op, x)


def _rope(low: Lowering, op: Op) -> None:
    x, positions = op.inputs[:2]
    table = low.angles(op, positions, op.inputs[2] if len(op.inputs) > 2 else None)
    heads = op.integer("heads")
    interleaved = op.attribute("style") == "interleaved"
    sizes = (heads, low.value(x).shape[1] // heads, op.integer("rotary"), int(interleaved))
    arguments = (Ref(x), Ref(table), Ref(op.outputs[0]), low.rows(x), *sizes)
    low.emit("rope", arguments, Op(op.kind, (x, table), op.outputs), x)


def _kv_append(low: Lowering, op: Op) -> None:
    k, v, positions, write_slots = op.inputs
    keys, values, key_positions = op.outputs
    check_width(op, low.value(keys).shape[2] * 4)
    heads, slots = op.integer("heads"), low.value(key_positions).size
    width = low.value(k).shape[1] // heads
    sources = (Ref(k), Ref(v), Ref(positions), Ref(write_slots))
    targets = (Ref(keys), Ref(values), Ref(key_positions))
    low.emit("kv_append", (*sources, *targets, low.rows(k), heads, width, op.integer("page_size"), slots), op, None)


def _elementwise(low: Lowering, op: Op) -> None:
    x, y = op.inputs[0], op.inputs[-1]
    given = dict(op.attributes)
    activation = ACTIVATIONS.index(str(given["act"])) if "act" in given else 0
    number = float(given.get("cap", given.get("factor", given.get("limit", 0.0))))
    sizes = (low.value(x).shape[1], activation, number, float(given.get("slope", 0.0)))
    arguments = (Ref(x), Ref(y), Ref(op.outputs[0]), low.rows(x), *sizes)
    # One value a row on the right: for all of x's columns.
    by_row = low.value(y).shape != low.value(x).shape
    low.emit(f"{op.kind}_rows" if by_row else op.kind, arguments, op, x)


def _gather_rows(low: Lowering, op: Op) -> None:
    x, indices = op.inputs
    limit, width = low.value(x).shape
    low.emit("gather_rows", (Ref(x), Ref(indices), Ref(op.outputs[0]), low.rows(indices), width, limit), op, indices)


def _store(low: Lowering, op: Op) -> None:
    x = op.inputs[0]
    low.emit("store", (Ref(x), Ref(op.outputs[0]), low.rows(x), low.value(x).size // low.value(x).shape[0]), op, None)


def _copy_pages(low: Lowering, op: Op) -> None:
    counts, sources, targets = (Ref(name) for name in op.inputs)
    state = low.value(op.outputs[0])
    sizes = (state.nbytes // state.shape[0], state.shape[0])
    low.emit("copy_pages", (counts, sources, targets, Ref(state.name), *sizes), op, None)


def _copy_slots(low: Lowering, op: Op) -> None:
    counts, sources, targets = (Ref(name) for name in op.inputs)
    state, axis = low.value(op.outputs[0]), op.integer("axis")
    outer, inner = math.prod(state.shape[1:axis]), math.prod(state.shape[axis + 1 :]) * state.dtype.nbytes
    sizes = (state.nbytes // state.shape[0], state.shape[0], op.integer("page_size"), outer, inner)
    scratch = low.value(op.inputs[1]).size * inner
    low.emit("copy_slots", (counts, sources, targets, Ref(state.name), *sizes), op, None, scratch)


_LOWERINGS: Mapping[str, Callable[[Lowering, Op], None]] = {
    "embed": _embed,
    "rms_norm": _norm,
    "add_rms_norm": _norm,
    "layer_norm": _layer_norm,
    "linear": _linear,
    "adapter_linear": _adapter_linear,
    "rope": _rope,
    "kv_append": _kv_append,
    "attention": attention,
    "attention_mass": attention_mass,
    "route": lower_experts.route,
    "sort_by_expert": lower_experts.sort_by_expert,
    "expert_linear": lower_experts.expert_linear,
    "combine_experts": lower_experts.combine_experts,
    "clamped_glu": _elementwise,
    "short_conv": short_conv,
    "tail_append": tail_append,
    "gated_delta": gated_delta,
    "activation": _elementwise,
    "glu": _elementwise,
    "add": _elementwise,
    "mul": _elementwise,
    "scale": _elementwise,
    "softcap": _elementwise,
    "gather_rows": _gather_rows,
    "store": _store,
    "copy_pages": _copy_pages,
    "copy_slots": _copy_slots,
}

KINDS = frozenset(_LOWERINGS)
"""Op kinds that the kernels run."""
