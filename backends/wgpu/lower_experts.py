"""Launches of mixtures of experts: a row's choice, its order, and products by expert."""

from __future__ import annotations

from typing import Any

from pie_edge.backends.shared.experts import places, row_groups, together
from pie_edge.backends.shared.weights import Matrix, Part
from pie_edge.backends.wgpu.lower_linear import packed
from pie_edge.backends.wgpu.lowering import Lowering
from pie_edge.backends.wgpu.plan import Launch, launch
from pie_edge.backends.wgpu.shader import shader
from pie_edge.errors import Unsupported
from pie_edge.program.ops import Op, Role


def route(c: Lowering, op: Op) -> list[Launch]:
    (logits,) = op.inputs
    constants: dict[str, Any] = {"LOCAL": c.tuning.reduction, "SUBGROUPS": c.tuning.subgroups}
    constants |= {"EXPERTS": c.width(logits), "CHOSEN": op.integer("chosen")}
    constants |= {"NORMALISED": bool(op.attribute("normalised")), "SCALE": op.number("scale")}
    experts, weights = (c.place[name] for name in op.outputs)
    bindings = {"logits": c.place[logits], "experts": experts, "weights": weights}
    return [launch(shader("route", **constants), bindings, (1, c.rows_of(logits), 1), zero=0)]


def sort_by_expert(c: Lowering, op: Op) -> list[Launch]:
    (experts,) = op.inputs
    count, counter = op.integer("experts"), c.counter_word(experts)
    inner = all(c.program.values[name].role is Role.TEMP for name in op.outputs)
    if inner and together(c, experts, count) == 1:
        return []  # nobody asks for it
    constants: dict[str, Any] = {"LOCAL": c.tuning.reduction, "EXPERTS": count, "CHOSEN": c.width(experts)}
    constants |= {"COUNTED": counter is not None, "COUNTER": counter or 0}
    order, starts = (c.place[name] for name in op.outputs)
    bindings = {"experts": c.place[experts], "order": order, "starts": starts}
    if counter is not None:
        bindings["counts"] = c.header
    return [launch(shader("sort_by_expert", **constants), bindings, (1, 1, 1), room=c.capacity(experts))]


def expert_linear(c: Lowering, op: Op) -> list[Launch]:
    matrix = c.matrix(op.inputs[4])
    if matrix.packing.columns % 4:
        raise Unsupported(f"experts of {matrix.packing.columns} columns: whole fours are wanted on wgpu")
    return [_product(c, op, matrix, part) for part in matrix.parts]


def combine_experts(c: Lowering, op: Op) -> list[Launch]:
    x, weights = op.inputs
    width = c.width(op.outputs[0])
    kind, elements = ("vec4<f32>", width // 4) if width % 4 == 0 else ("f32", width)
    constants = {"LOCAL": c.tuning.elementwise, "ELEMENTS": elements, "T": kind, "CHOSEN": c.width(weights)}
    bindings = {"x": c.place[x], "weights": c.place[weights], "y": c.place[op.outputs[0]]}
    return [launch(shader("combine_experts", **constants), bindings, c.over(elements, c.rows_of(weights)))]


def _product(c: Lowering, op: Op, matrix: Matrix, part: Part) -> Launch:
    x, experts, order, starts, _, *bias = op.inputs
    packing, chosen, count = matrix.packing, c.width(experts), c.capacity(starts) - 1
    outputs, at_once = matrix.shape[0] // count, together(c, experts, count)
    variant = c.tuning.linear_variant(at_once)
    # Each expert of a row may have its own x, or all the row's.
    sharing = 1 if c.width(x) > packing.columns else chosen
    constants: dict[str, Any] = {
        **packed(c, packing),
        "KS": variant.splits,
        "NR": variant.groups,
        "M": at_once,
        "SIDES": 1,
        "NORM": False,
        "FRACTIONS": max(32 // packing.group, 1),
        "SUMS": variant.groups * at_once,
        "BIAS": bool(bias),
        "ROWS": outputs,
        "EXPERTS": count,
        "CHOSEN": chosen,
        "X_ROW": f"place_{{m}} / {sharing}u",
    }
    bindings = {"codes": part.region, "x": c.place[x], "y": c.place[op.outputs[0]], "experts": c.place[experts]}
    if packing.quantised:
        bindings["scales"] = part.region
    if bias:
        vector = c.vector(bias[0])
        bindings["bias"] = vector.region
    if at_once > 1:
        bindings |= {"order": c.place[order], "starts": c.place[starts]}
    grid = (-(-row_groups(packing, part, outputs) // variant.groups), *places(c, experts, count, at_once))
    told = {"scales_from": part.scales // 4, "part_first": part.first, "part_rows": part.rows, "zero": packing.zero}
    return launch(shader("expert_linear", **constants), bindings, grid, **told)
