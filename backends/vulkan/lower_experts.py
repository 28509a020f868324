"""Launches of mixtures of experts: a row's choice, its order, and products by expert."""

from __future__ import annotations

from pie_edge.backends.shared.experts import places, row_groups, together
from pie_edge.backends.shared.weights import Matrix, Part
from pie_edge.backends.shared.words import words
from pie_edge.backends.vulkan.launch import Access, Binding, Kernel, Launch, Texels
from pie_edge.backends.vulkan.lowering import Lowering
from pie_edge.backends.vulkan.shaders import shader
from pie_edge.errors import Unsupported
from pie_edge.program.ops import Op, Role


def route(c: Lowering, op: Op) -> list[Launch]:
    (logits,) = op.inputs
    constants = (c.width(logits), op.integer("chosen"), bool(op.attribute("normalised")), op.number("scale"))
    kernel = Kernel(shader(f"route{c.subgroups}"), (c.tuning.reduction, *constants))
    return [Launch(kernel, (c.read(logits), *map(c.write, op.outputs)), (1, c.rows_of(logits), 1))]


def sort_by_expert(c: Lowering, op: Op) -> list[Launch]:
    (experts,) = op.inputs
    count = op.integer("experts")
    inner = all(c.program.values[name].role is Role.TEMP for name in op.outputs)
    if inner and together(c, experts, count) == 1:
        return []  # nobody asks for it
    step, counter = c.counter(experts)
    kernel = Kernel(shader("sort_by_expert"), (c.tuning.reduction, count, c.width(experts)))
    bindings = (c.read(experts), *map(c.write, op.outputs), Binding(step or c.place[experts]))
    return [Launch(kernel, bindings, (1, 1, 1), words(c.capacity(experts), counter))]


def expert_linear(c: Lowering, op: Op) -> list[Launch]:
    matrix = c.matrix(op.inputs[4])
    if matrix.packing.columns % 4:
        raise Unsupported(f"experts of {matrix.packing.columns} columns: whole fours are wanted on Vulkan")
    return [_launch(c, op, matrix, part) for part in matrix.parts]


def _launch(c: Lowering, op: Op, matrix: Matrix, part: Part) -> Launch:
    x, experts, order, starts, _, *bias = op.inputs
    packing, chosen, count = matrix.packing, c.width(experts), c.capacity(starts) - 1
    outputs, at_once = matrix.shape[0] // count, together(c, experts, count)
    variant = c.tuning.linear_variant(at_once)
    sharing = 1 if c.width(x) > packing.columns else chosen
    layout = (variant.groups, at_once, packing.columns, outputs, count, chosen, sharing)
    constants = (*layout, bool(bias), packing.group, packing.scales, *packing.table)
    as_texels = c.as_texels(part.region, c.place[x])
    codes, scales, floats = (Texels.FOURS, Texels.WORDS, Texels.FLOATS) if as_texels else (None, None, None)
    vector = c.vector(bias[0]) if bias else None
    # Alone a row needs no order, and there is none.
    sorted_by = (order, starts) if at_once > 1 else (experts, experts)
    bindings = (
        *(Binding(part.region, texels=codes), Binding(part.region, texels=scales), Binding(c.place[x], texels=floats)),
        *(Binding(part.region if vector is None else vector.region), Binding(c.place[op.outputs[0]], Access.WRITE)),
        *map(c.read, (experts, *sorted_by)),
    )
    lanes = packing.interleaved
    kernel = Kernel(
        shader(f"expert_linear_{packing.format}{'_texels' if as_texels else ''}"),
        (lanes * variant.splits, lanes, variant.splits, *constants),
    )
    across = -(-row_groups(packing, part, outputs) // variant.groups)
    grid = (across, *places(c, experts, count, at_once))
    return Launch(kernel, bindings, grid, words(part.scales // 4, part.first, part.rows, packing.zero))
