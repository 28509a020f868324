"""Launches of ``attention``: decodes split over their keys, prefills in tiles of rows, each only where a step has them."""

from __future__ import annotations

import math
from typing import Any

from pie_edge.backends.shared.attention import (
    FIELDS,
    MASKS,
    OBSERVED,
    Shape,
    has_sinks,
    launches,
    masked,
    split,
    splits,
)
from pie_edge.backends.shared.grid import Count
from pie_edge.backends.shared.tuning import AttentionVariant
from pie_edge.backends.wgpu.lowering import Lowering
from pie_edge.backends.wgpu.memory import Region
from pie_edge.backends.wgpu.plan import Launch, launch
from pie_edge.backends.wgpu.shader import shader
from pie_edge.program.ops import Op


def attention(c: Lowering, op: Op) -> list[Launch]:
    """Up to three launches: decodes, what joins their splits, and rows of sequences with several."""
    return launches(c, op, _attend, _merge, _by_row)


def attention_mass(c: Lowering, op: Op) -> list[Launch]:
    """A workgroup for each row that may be observed; those past the true ones leave at once."""
    shape = Shape.of(c, op)
    constants = {"LOCAL": c.tuning.reduction, "SUBGROUPS": c.tuning.subgroups, "OBSERVED": True}
    names = ("q", "keys", "key_positions")
    bindings = {name: c.place[value] for name, value in zip(names, op.inputs, strict=False)}
    bindings |= {"step": c.step, "y": c.place[op.outputs[0]], **_sinks(c, op)}
    told = {name: c.words[name] for name in OBSERVED} | {"layer": op.integer("layer")}
    kernel = shader("attention_mass", **constants, **_constants(c, shape, op))
    return [launch(kernel, bindings, (c.capacity("mass_rows"), 1, 1), **_step(c, op, 0, False), **told)]


def _constants(c: Lowering, shape: Shape, op: Op) -> dict[str, Any]:
    """Those that all kernels of attention have."""
    return {
        "HEADS": shape.heads,
        "KV_HEADS": shape.kv_heads,
        "SHARING": shape.sharing,
        "WIDTH": shape.width,
        "PAGE": shape.page,
        "HALVES": shape.halves,
        "F16": shape.halves and c.tuning.half_floats,
        "VECTORS": shape.vectors,
        "FOURS": shape.width // 4,
        "PER_VECTOR": 8 if shape.halves else 4,
        "MASKED": masked(op),
        "SINKS": has_sinks(op),
        "SCALE": op.number("scale"),
        "SOFTCAP": op.number("softcap"),
    }


def _operands(c: Lowering, op: Op) -> dict[str, Region]:
    names = ("q", "keys", "values", "key_positions")
    found = {name: c.place[value] for name, value in zip(names, op.inputs, strict=False)}
    return found | {"step": c.step, "y": c.place[op.outputs[0]], **_sinks(c, op)}


def _by_row(c: Lowering, op: Op, shape: Shape) -> Launch:
    local, together = c.tuning.by_row, shape.together(c.tuning.held)
    constants = {"LOCAL": local, "TOGETHER": together, "OBSERVED": False}
    grid = (Count("rows", divisor=local), shape.heads // together, 1)
    kernel = shader("attention_rows", **constants, **_constants(c, shape, op))
    return launch(kernel, _operands(c, op), grid, **_step(c, op, 0, False))


def _attend(c: Lowering, op: Op, shape: Shape, variant: AttentionVariant, singles: bool) -> Launch:
    keys = split(c, shape, variant.chunk) if singles else 0
    queries, across = variant.rows * shape.sharing, math.gcd(variant.local, shape.vectors)
    constants = {
        "LOCAL": variant.local,
        "ROWS": variant.rows,
        "CHUNK": variant.chunk,
        "SUBGROUPS": c.tuning.subgroups,
        "QUERIES": queries,
        "QUADS": -(-queries // 4),
        "OWN": variant.chunk // variant.local,
        "SPLIT": singles,
        "ACROSS": across,
        "GROUPS": variant.local // across,
        "STRIPS": shape.vectors // across,
        "OBSERVED": False,
    }
    bindings = _operands(c, op)
    if singles:
        bindings["splits"] = c.room
    grid = (Count("rows", divisor=variant.rows), shape.kv_heads, splits(c, shape, keys) if singles else 1)
    return launch(
        shader("attention", **constants, **_constants(c, shape, op)), bindings, grid, **_step(c, op, keys, singles)
    )


def _merge(c: Lowering, op: Op, shape: Shape) -> Launch:
    constants = {"LOCAL": c.tuning.reduction, "OBSERVED": False}
    bindings = {"splits": c.room, "step": c.step, "y": c.place[op.outputs[0]], **_sinks(c, op)}
    grid = (Count("sequences"), shape.heads, 1)
    kernel = shader("attention_merge", **constants, **_constants(c, shape, op))
    return launch(kernel, bindings, grid, **_step(c, op, c.tuning.split, True))


def _step(c: Lowering, op: Op, keys: int, singles: bool) -> dict[str, int]:
    """The parameters of ``shaders/wgsl/lib/step.wgsl``."""
    fields = {name: c.words[name] for name in (*FIELDS, *(MASKS if masked(op) else ()))}
    return fields | {"window": op.integer("window"), "split": keys, "singles": int(singles)}


def _sinks(c: Lowering, op: Op) -> dict[str, Region]:
    if not has_sinks(op):
        return {}
    return {"sinks": c.vector(op.named["sinks"]).region}
