"""Launches of mixtures of experts: a row's choice, its order, and products by expert."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pie_edge.backends.shared.grid import Count, Extent
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
    if inner and _together(c, experts, count) == 1:
        return []  # nobody asks for it
    constants: dict[str, Any] = {"LOCAL": c.tuning.reduction, "EXPERTS": count, "CHOSEN": c.width(experts)}
    constants |= {"COUNTED": counter is not None, "COUNTER": counter or 0}
    order, starts = (c.place[name] for name in op.outputs)
    bindings = {"experts": c.place[experts], "order": order, "starts": starts}
    if counter is not None:
        bindings["counts"] = c.header
    return [launch(shader("sort_by_expert", **constants), bindings, (1, 1, 1), room=c.capacity(experts))]


def expert_linear(c: Lowering, op: Op) -> list[Launch]:
    matrix = c.weights[op.inputs[4]]
    assert isinstance(matrix, Matrix)
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


def _together(c: Lowering, experts: str, count: int) -> int:
    """Rows of an expert that a workgroup takes: as many as one has on average, where all that there is room for come."""
    average = -(-c.program.values[experts].size // count)
    sizes = [tokens for tokens, _ in c.tuning.linear]
    return next((tokens for tokens in sizes if tokens >= average), sizes[-1])


def _product(c: Lowering, op: Op, matrix: Matrix, part: Part) -> Launch:
    x, experts, order, starts, _, *bias = op.inputs
    packing, chosen, count = matrix.packing, c.width(experts), c.capacity(starts) - 1
    outputs, together = matrix.shape[0] // count, _together(c, experts, count)
    variant = c.tuning.linear_variant(together)
    # Each expert of a row may have its own x, or all the row's.
    sharing = 1 if c.width(x) > packing.columns else chosen
    constants: dict[str, Any] = {
        **packed(c, packing),
        "KS": variant.splits,
        "NR": variant.groups,
        "M": together,
        "SIDES": 1,
        "NORM": False,
        "FRACTIONS": max(32 // packing.group, 1),
        "SUMS": variant.groups * together,
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
    if together > 1:
        bindings |= {"order": c.place[order], "starts": c.place[starts]}
    # An expert whose rows aren't whole row groups may reach into one more.
    lanes = packing.interleaved
    groups = min(-(-outputs // lanes) + (outputs % lanes != 0), -(-part.rows // lanes))
    grid = (-(-groups // variant.groups), *_places(c, experts, count, together))
    told = {"scales_from": part.scales // 4, "part_first": part.first, "part_rows": part.rows, "zero": packing.zero}
    return launch(shader("expert_linear", **constants), bindings, grid, **told)


def _places(c: Lowering, experts: str, count: int, together: int) -> tuple[Extent, Extent]:
    """Workgroups in y and z: rows and their experts, or as many tiles as there may be."""
    rows, chosen = c.rows_of(experts), c.width(experts)
    if together == 1:
        return rows, chosen
    if isinstance(rows, Count):
        # Each expert may have a tile that isn't full.
        return replace(rows, divisor=together, times=chosen, more=count), 1
    return -(-rows // together) * chosen + count, 1
