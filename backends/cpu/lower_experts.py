"""Mixtures of experts in instructions: ``kernels/experts.c``, and the products of ``kernels/experts.h``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pie_edge.backends.cpu.instructions import Argument, Instruction, Ref
from pie_edge.backends.cpu.lower_linear import TILE, VECTOR_ROWS, matrix_format, prepared_row, product_scratch
from pie_edge.errors import Unsupported
from pie_edge.program.ops import Op

if TYPE_CHECKING:
    from pie_edge.backends.cpu.lowering import Lowering

STRIP = 8
"""As in ``kernels/weights.h``."""


def route(low: Lowering, op: Op) -> None:
    (logits,) = op.inputs
    experts, weights = op.outputs
    sizes = (low.value(logits).shape[1], op.integer("chosen"), op.integer("normalised"), op.number("scale"))
    low.emit(op.kind, (Ref(logits), Ref(experts), Ref(weights), low.rows(logits), *sizes), op, logits)


def sort_by_expert(low: Lowering, op: Op) -> None:
    (experts,) = op.inputs
    order, starts = op.outputs
    sizes = (low.value(experts).shape[1], op.integer("experts"))
    low.emit(op.kind, (Ref(experts), Ref(order), Ref(starts), low.rows(experts), *sizes), op, experts)


def expert_linear(low: Lowering, op: Op) -> None:
    _, experts, order, starts, weight = op.inputs[:5]
    form, (rows, columns) = matrix_format(low, weight), low.value(weight).shape
    count, y = low.value(starts).shape[0] - 1, op.outputs[0]
    outputs = rows // count
    if outputs % STRIP:
        raise Unsupported(f"{op}: the cpu backend takes experts of a multiple of {STRIP} rows, not {outputs}")
    prepared = _prepared(low, op, form.group if form.affine else 0, columns)
    bias: Argument = Ref(op.inputs[5]) if len(op.inputs) > 5 else 0
    product = (Ref(weight), Ref(prepared), bias, Ref(y), 0, outputs, columns, form.number, form.zero, 0)
    kernel = "expert_linear_affine" if form.affine else "expert_linear_dense"
    reads = (prepared, order, starts, *op.inputs[4:])
    arguments = (*product, *_mixture(low, op))
    low.emit(kernel, arguments, Op(op.kind, reads, op.outputs), experts, product_scratch(form, columns))


def _prepared(low: Lowering, op: Op, group: int, columns: int) -> str:
    """The temporary with the rows of x, in the order of their experts, prepared for weights of this group: one for all that
    they meet."""
    x, experts, order, starts = op.inputs[:4]
    key = (x, order, group)
    if key not in low.sorted_rows:
        places, count = low.value(experts).size, low.value(starts).shape[0] - 1
        slots = min(places, VECTOR_ROWS * count + places // TILE)
        name = low.temporary(f"#sorted{len(low.sorted_rows)}", slots * prepared_row(columns, group))
        sharing = 1 if low.value(x).shape[1] > columns else low.value(experts).shape[1]
        arguments = (Ref(x), Ref(name), 0, columns, group, *_mixture(low, op), sharing)
        low.instructions.append(Instruction("prepare_experts", arguments, (x, order, starts), (name,)))
        low.sorted_rows[key] = name
    return low.sorted_rows[key]


def _mixture(low: Lowering, op: Op) -> tuple[Argument, ...]:
    """``struct mixture``."""
    _, experts, order, starts = op.inputs[:4]
    sizes = (low.value(starts).shape[0] - 1, low.value(experts).shape[1])
    return (Ref(order), Ref(starts), low.rows(experts), *sizes)


def combine_experts(low: Lowering, op: Op) -> None:
    x, weights = op.inputs
    y, count = op.outputs[0], low.value(weights).shape[1]
    sizes = (low.value(y).shape[1], count)
    low.emit(op.kind, (Ref(x), Ref(weights), Ref(y), low.rows(weights), *sizes), op, weights)
