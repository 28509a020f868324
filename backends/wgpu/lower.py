"""From the ops of a model Program to launches: one function per kind, each next to the shader of the same name."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from pie_edge.backends.shared.fuse import FUSED
from pie_edge.backends.shared.grid import Count, Extent
from pie_edge.backends.shared.lowering import by_kind
from pie_edge.backends.wgpu import lower_attention, lower_experts, lower_linear, lower_recurrent
from pie_edge.backends.wgpu.lowering import Lowering
from pie_edge.backends.wgpu.memory import Region
from pie_edge.backends.wgpu.plan import Launch, launch
from pie_edge.backends.wgpu.shader import shader
from pie_edge.program.encodings import DType
from pie_edge.program.ops import Op


def embed(c: Lowering, op: Op) -> list[Launch]:
    table, local = c.matrix(op.inputs[0]), c.tuning.interleaved
    packing = table.packing
    kernel = shader("embed", LOCAL=local, **lower_linear.packed(c, packing))
    grid = (-(-packing.blocks // local), c.rows_of(op.inputs[1]), 1)
    launches = []
    for part in table.parts:
        bindings = {"codes": part.region, "step": c.step, "tokens": c.place[op.inputs[2]], "y": c.place[op.outputs[0]]}
        if packing.quantised:
            bindings["scales"] = part.region
        told = {"first": part.first, "rows": part.rows, "scales_at": part.scales // 4}
        numbers = {"factor": op.number("scale"), "zero": packing.zero, "sources": c.words[op.inputs[1]]}
        launches.append(launch(kernel, bindings, grid, **told, **numbers))
    return launches


def rms_norm(c: Lowering, op: Op) -> list[Launch]:
    x, weight = op.inputs
    bindings = {"x": c.place[x], "weight": c.vector(weight).region, "y": c.place[op.outputs[0]]}
    return [_norm(c, op, weight, bindings, op.integer("groups"), add=False)]


def add_rms_norm(c: Lowering, op: Op) -> list[Launch]:
    x, residual, weight = op.inputs
    total, y = op.outputs
    places = {"x": c.place[x], "residual": c.place[residual], "total": c.place[total], "y": c.place[y]}
    return [_norm(c, op, weight, places | {"weight": c.vector(weight).region}, 1, add=True)]


def _norm(c: Lowering, op: Op, weight: str, bindings: Mapping[str, Region], groups: int, add: bool) -> Launch:
    numbers = {"WIDTH": len(c.vector(weight).values), "EPS": op.number("eps"), "OFFSET": op.number("offset")}
    kernel = shader("rms_norm", **_reducing(c), **numbers, ADD=add)
    return launch(kernel, bindings, (groups, c.rows_of(op.inputs[0]), 1))


def layer_norm(c: Lowering, op: Op) -> list[Launch]:
    x, weight, *bias = op.inputs
    bindings = {"x": c.place[x], "weight": c.vector(weight).region, "y": c.place[op.outputs[0]]}
    if bias:
        bindings["bias"] = c.vector(bias[0]).region
    kernel = shader("layer_norm", **_reducing(c), WIDTH=c.width(x), EPS=op.number("eps"), BIAS=bool(bias))
    return [launch(kernel, bindings, (1, c.rows_of(x), 1))]


def _reducing(c: Lowering) -> dict[str, Any]:
    return {"LOCAL": c.tuning.reduction, "SUBGROUPS": c.tuning.subgroups}


def rope(c: Lowering, op: Op) -> list[Launch]:
    x, positions, *factors = op.inputs
    heads = op.integer("heads")
    width = c.width(x) // heads
    kernel = shader("rope", LOCAL=c.tuning.elementwise, HEADS=heads, WIDTH=width, **_turning(op))
    bindings = {"x": c.place[x], "step": c.step, "frequencies": c.frequencies(op, factors)}
    bindings["y"] = c.place[op.outputs[0]]
    grid = c.over(heads * width // 2, c.rows_of(x))
    return [launch(kernel, bindings, grid, positions=c.words[positions])]


def rope_append(c: Lowering, op: Op) -> list[Launch]:
    q, k, v, positions, slots, *factors = op.inputs
    heads, kv_heads = op.integer("heads"), op.integer("kv_heads")
    width = c.width(q) // heads
    constants = {"LOCAL": c.tuning.elementwise, "HEADS": heads, "KV_HEADS": kv_heads, "WIDTH": width}
    kept = _kept(c, op, op.outputs[1], width)
    bindings = {"q": c.place[q], "k": c.place[k], "v": c.place[v], "step": c.step}
    bindings |= {"frequencies": c.frequencies(op, factors)} | _written(c, ("y", *_CACHE), op)
    grid = c.over(heads * width // 2 + kv_heads * kept["VECTORS"], c.rows_of(q))
    told = {"positions": c.words[positions], "write_slots": c.words[slots]}
    return [launch(shader("rope_append", **constants, **kept, **_turning(op)), bindings, grid, **told)]


_CACHE = ("keys", "values", "key_positions")


def kv_append(c: Lowering, op: Op) -> list[Launch]:
    k, v, positions, slots = op.inputs
    heads = op.integer("heads")
    width = c.width(k) // heads
    kept = _kept(c, op, op.outputs[0], width)
    kernel = shader("kv_append", LOCAL=c.tuning.elementwise, HEADS=heads, WIDTH=width, **kept)
    bindings = {"k": c.place[k], "v": c.place[v], "step": c.step} | _written(c, _CACHE, op)
    grid = c.over(heads * kept["VECTORS"], c.rows_of(k))
    return [launch(kernel, bindings, grid, positions=c.words[positions], write_slots=c.words[slots])]


def _kept(c: Lowering, op: Op, keys: str, width: int) -> dict[str, Any]:
    """How keys and values of heads of so many values lie in their pages."""
    halves = c.program.values[keys].dtype is DType.F16
    each = 8 if halves else 4
    return {
        "PAGE": op.integer("page_size"),
        "HALVES": halves,
        "F16": False,
        "PER_VECTOR": each,
        "VECTORS": width // each,
    }


def _written(c: Lowering, names: Sequence[str], op: Op) -> dict[str, Region]:
    return {name: c.place[value] for name, value in zip(names, op.outputs, strict=True)}


def _turning(op: Op) -> dict[str, Any]:
    neox = op.attribute("style") == "neox"
    return {"ROTARY": op.integer("rotary"), "NEOX": neox, "MAGNITUDE": op.number("magnitude")}


def _elementwise(c: Lowering, op: Op) -> list[Launch]:
    x, *other = op.inputs
    width, target = c.width(x), c.place[op.outputs[0]]
    # A state may have more rows than are written: no more than those are bound.
    bindings = {"x": c.place[x], "z": target.part(0, min(c.place[x].nbytes, target.nbytes))}
    # One buffer's bytes may be bound for writing only once.
    two = bool(other) and other[0] != x
    if two:
        bindings["other"] = c.place[other[0]]
    kind, elements = ("vec4<f32>", width // 4) if width % 4 == 0 else ("f32", width)
    attributes = {"FACTOR": "factor", "CAP": "cap", "SLOPE": "slope", "LIMIT": "limit"}
    held = {name for name, _ in op.attributes}
    numbers = {name: op.number(attribute) for name, attribute in attributes.items() if attribute in held}
    act = str(op.attribute("act")) if "act" in held else ""
    column = two and c.width(other[0]) < width
    constants = {"LOCAL": c.tuning.elementwise, "ELEMENTS": elements, "T": kind, "KIND": op.kind, "TWO": two}
    kernel = shader("elementwise", **constants, **numbers, ACT=act, COLUMN=column)
    return [launch(kernel, bindings, c.over(elements, c.rows_of(x)))]


_WIDE = 64
"""Columns from which on a workgroup shares a sum."""


def adapter_linear(c: Lowering, op: Op) -> list[Launch]:
    x, matrices, adapters, *base = op.inputs
    wide, outputs = c.width(x) >= _WIDE, c.width(op.outputs[0])
    constants = {"WIDE": wide, "OUTPUTS": outputs, "COLUMNS": c.width(x), "BASE": bool(base)}
    bindings = {"x": c.place[x], "matrices": c.place[matrices], "step": c.step, "y": c.place[op.outputs[0]]}
    if base:
        bindings["base"] = c.place[base[0]]
    across = outputs if wide else -(-outputs // c.tuning.reduction)
    kernel = shader("adapter_linear", **_reducing(c), **constants)
    return [launch(kernel, bindings, (across, c.rows_of(x), 1), adapters=c.words[adapters])]


def gather_rows(c: Lowering, op: Op) -> list[Launch]:
    x, rows = op.inputs
    width = c.width(x)
    kind, elements = ("vec4<u32>", width // 4) if width % 4 == 0 else ("u32", width)
    kernel = shader("gather_rows", LOCAL=c.tuning.elementwise, ELEMENTS=elements, T=kind)
    bindings = {"x": c.place[x], "step": c.step, "y": c.place[op.outputs[0]]}
    return [launch(kernel, bindings, c.over(elements, c.rows_of(op.outputs[0])), rows=c.words[rows])]


def copy_pages(c: Lowering, op: Op) -> list[Launch]:
    _, sources, targets = op.inputs
    state = c.program.values[op.outputs[0]]
    page = state.nbytes // state.shape[0]
    kind, elements = ("vec4<u32>", page // 16) if page % 16 == 0 else ("u32", page // 4)
    kernel = shader("copy_pages", LOCAL=c.tuning.elementwise, ELEMENTS=elements, T=kind)
    copies: Extent = Count("passes")
    bindings = {"step": c.step, "state": c.place[op.outputs[0]]}
    return [launch(kernel, bindings, c.over(elements, copies), sources=c.words[sources], targets=c.words[targets])]


def copy_slots(c: Lowering, op: Op) -> list[Launch]:
    """All tokens into the scratch, then out of it: as if all were read before any is written."""
    state, axis, page = c.program.values[op.outputs[0]], op.integer("axis"), op.integer("page_size")
    inner = math.prod(state.shape[axis + 1 :]) * state.dtype.nbytes
    kind, size = ("vec4<u32>", 16) if inner % 16 == 0 else ("u32", 4)
    outer = math.prod(state.shape[1:axis])
    _, sources, targets = op.inputs
    assert c.scratch is not None
    bindings = {"step": c.step, "state": c.place[op.outputs[0]], "scratch": c.scratch}
    grid = c.over(outer * inner // size, Count("passes"))
    constants = {"LOCAL": c.tuning.elementwise, "OUTER": outer, "PAGE": page, "INNER": inner // size, "T": kind}
    return [
        launch(shader("copy_slots", **constants, GATHER=gather), bindings, grid, slots=c.words[slots])
        for gather, slots in ((True, sources), (False, targets))
    ]


clamped_glu = glu = activation = add = mul = scale = softcap = store = _elementwise

LOWER = {
    **by_kind(sys.modules[__name__], lower_attention, lower_experts, lower_linear, lower_recurrent),
    "product": lower_linear.product,
}

KINDS = frozenset(LOWER) - FUSED - {"product"} | {"linear"}
"""Kinds of the op table that have a kernel."""
