"""Launches of mixtures of experts: a row's choice, its order, and products by expert."""

from __future__ import annotations

from dataclasses import replace

from pie_edge.backends.cuda.launch import Kernel, Launch, arguments, packed
from pie_edge.backends.cuda.lowering import Lowering
from pie_edge.backends.cuda.matrices import Use, macros, packing_fields
from pie_edge.backends.cuda.tuning import ROWS, WARPS
from pie_edge.backends.shared.grid import Count, Extent
from pie_edge.errors import Unsupported
from pie_edge.program.ops import Op

_MOST_EXPERTS = 1023
_TOGETHER = 4
"""Rows of an expert that a block takes, where there are several."""


def route(c: Lowering, op: Op) -> list[Launch]:
    (logits,) = op.inputs
    count = c.width(logits)
    if count > _MOST_EXPERTS:
        raise Unsupported(f"{op}: {count} experts; the CUDA backend takes {_MOST_EXPERTS}")
    told = (count, op.integer("chosen"), bool(op.attribute("normalised")), op.number("scale"), c.counter(logits))
    given = arguments(*c.at(logits, *op.outputs), *told)
    return [Launch(Kernel("route.cu", "route"), given, (c.rows_of(logits), 1, 1), 32)]


def sort_by_expert(c: Lowering, op: Op) -> list[Launch]:
    (experts,) = op.inputs
    told = (op.integer("experts"), c.width(experts), c.capacity(experts), c.counter(experts))
    given = arguments(*c.at(experts, *op.outputs), *told)
    threads = -(-(op.integer("experts") + 1) // 32) * 32
    return [Launch(Kernel("route.cu", "sort_by_expert"), given, (1, 1, 1), threads)]


def expert_linear(c: Lowering, op: Op) -> list[Launch]:
    x, experts, order, starts, name, *bias = op.inputs
    matrix, chosen, count = c.matrix(name), c.width(experts), c.capacity(starts) - 1
    packing, outputs = matrix.packing, matrix.shape[0] // count
    alone = c.program.values[experts].size <= count
    tokens = 1 if alone else _TOGETHER
    sharing = 1 if c.width(x) > packing.columns else chosen
    kernel = Kernel("experts.cu", "expert_linear", (*macros(packing), f"TOKENS={tokens}"))
    # An expert whose rows aren't whole row groups may reach into one more.
    groups = -(-outputs // ROWS) + (outputs % ROWS != 0)
    splits = c.tuning.splits(groups * (1 if alone else count), packing.blocks * packing.vectors)
    launches = []
    for part in matrix.parts:
        use = Use(matrix, part, c.place[op.outputs[0]], 0, c.vector(bias[0]).region if bias else None)
        sorted_by = (None, None) if alone else c.at(order, starts)
        rows = (c.counter(experts), c.capacity(experts), outputs, chosen, sharing, count, splits, part.first)
        told = packed(*c.at(x, experts), *sorted_by, *rows)
        given = arguments(packing_fields(packing), use.fields(), told)
        grid = (-(-groups // (WARPS // splits)), _places(c, experts, chosen, count, tokens), 1)
        launches.append(Launch(kernel, given, grid, 32 * WARPS))
    return launches


def _places(c: Lowering, experts: str, chosen: int, count: int, tokens: int) -> Extent:
    """Rows and their experts, or as many tiles as there may be: each expert may have one that isn't full."""
    rows, more = c.rows_of(experts), 0 if tokens == 1 else count
    if isinstance(rows, Count):
        return replace(rows, divisor=tokens, times=chosen, more=more)
    return -(-rows // tokens) * chosen + more
