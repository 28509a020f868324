"""Launches of ``attention``: decodes split over their keys, prefills in tiles of rows, each only where a step has them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from pie_edge.backends.shared.grid import Count, Extent
from pie_edge.backends.shared.tuning import AttentionVariant
from pie_edge.backends.shared.weights import Vector
from pie_edge.backends.wgpu.lowering import Lowering
from pie_edge.backends.wgpu.memory import Region
from pie_edge.backends.wgpu.plan import Launch, launch
from pie_edge.backends.wgpu.shader import shader
from pie_edge.errors import Unsupported
from pie_edge.program.encodings import DType
from pie_edge.program.ops import Op

_FIELDS = ("counts", "positions", "row_index", "query_starts", "page_starts", "pages", "page_bits", "fresh_bits")
_MASKS = ("mask_starts", "mask")
_OBSERVED = ("mass_rows", "mass_starts", "mass_layers")


def attention(c: Lowering, op: Op) -> list[Launch]:
    """Up to three launches: decodes, what joins their splits, and rows of sequences with several."""
    shape, launches = _Shape.of(c, op), []
    if c.shape.singles:
        launches.append(_attend(c, op, shape, c.tuning.decode, singles=True))
        if c.shape.splits:
            launches.append(_merge(c, op, shape))
    if c.shape.several:
        by_row = shape.width <= c.tuning.held
        launches.append(_by_row(c, op, shape) if by_row else _attend(c, op, shape, c.tuning.prefill, singles=False))
    return launches


def attention_mass(c: Lowering, op: Op) -> list[Launch]:
    """A workgroup for each row that may be observed; those past the true ones leave at once."""
    shape = _Shape.of(c, op)
    constants = {"LOCAL": c.tuning.reduction, "SUBGROUPS": c.tuning.subgroups, "OBSERVED": True}
    names = ("q", "keys", "key_positions")
    bindings = {name: c.place[value] for name, value in zip(names, op.inputs, strict=False)}
    bindings |= {"step": c.step, "y": c.place[op.outputs[0]], **_sinks(c, op)}
    told = {name: c.words[name] for name in _OBSERVED} | {"layer": op.integer("layer")}
    kernel = shader("attention_mass", **constants, **shape.constants(c, op))
    return [launch(kernel, bindings, (c.capacity("mass_rows"), 1, 1), **_step(c, op, 0, False), **told)]


@dataclass(frozen=True, slots=True)
class _Shape:
    heads: int
    kv_heads: int
    width: int
    page: int
    halves: bool
    vectors: int
    """16-byte vectors of a head."""

    @classmethod
    def of(cls, c: Lowering, op: Op) -> _Shape:
        heads, halves = op.integer("heads"), c.program.values[op.inputs[1]].dtype is DType.F16
        width = c.width(op.inputs[0]) // heads
        return cls(heads, op.integer("kv_heads"), width, op.integer("page_size"), halves, width // (8 if halves else 4))

    @property
    def sharing(self) -> int:
        return self.heads // self.kv_heads

    def constants(self, c: Lowering, op: Op) -> dict[str, Any]:
        """Those that all kernels of attention have."""
        return {
            "HEADS": self.heads,
            "KV_HEADS": self.kv_heads,
            "SHARING": self.sharing,
            "WIDTH": self.width,
            "PAGE": self.page,
            "HALVES": self.halves,
            "F16": self.halves and c.tuning.half_floats,
            "VECTORS": self.vectors,
            "FOURS": self.width // 4,
            "PER_VECTOR": 8 if self.halves else 4,
            "MASKED": _masked(op),
            "SINKS": bool(op.attribute("sinks")),
            "SCALE": op.number("scale"),
            "SOFTCAP": op.number("softcap"),
        }


def _operands(c: Lowering, op: Op) -> dict[str, Region]:
    names = ("q", "keys", "values", "key_positions")
    found = {name: c.place[value] for name, value in zip(names, op.inputs, strict=False)}
    return found | {"step": c.step, "y": c.place[op.outputs[0]], **_sinks(c, op)}


def _by_row(c: Lowering, op: Op, shape: _Shape) -> Launch:
    local, most = c.tuning.by_row, c.tuning.held // shape.width
    together = max(n for n in range(1, shape.sharing + 1) if shape.sharing % n == 0 and n <= most)
    constants = {"LOCAL": local, "TOGETHER": together, "OBSERVED": False}
    grid = (Count("rows", divisor=local), shape.heads // together, 1)
    kernel = shader("attention_rows", **constants, **shape.constants(c, op))
    return launch(kernel, _operands(c, op), grid, **_step(c, op, 0, False))


def _attend(c: Lowering, op: Op, shape: _Shape, variant: AttentionVariant, singles: bool) -> Launch:
    split = _split(c, shape, variant.chunk) if singles else 0
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
        bindings["splits"] = _scratch(c)
    grid = (Count("rows", divisor=variant.rows), shape.kv_heads, _splits(c, shape, split) if singles else 1)
    return launch(
        shader("attention", **constants, **shape.constants(c, op)), bindings, grid, **_step(c, op, split, singles)
    )


def _scratch(c: Lowering) -> Region:
    assert c.scratch is not None
    return c.scratch


def _split(c: Lowering, shape: _Shape, chunk: int) -> int:
    if c.tuning.split % shape.page or c.tuning.split % chunk:
        raise Unsupported(f"pages of {shape.page} tokens don't divide a split of {c.tuning.split}; use 8, 16 or 32")
    return c.tuning.split


def _splits(c: Lowering, shape: _Shape, split: int) -> Extent:
    """Splits of the longest sequence: one, unless the step has longer ones."""
    return Count("longest", divisor=split // shape.page) if c.shape.splits else 1


def _merge(c: Lowering, op: Op, shape: _Shape) -> Launch:
    constants = {"LOCAL": c.tuning.reduction, "OBSERVED": False}
    bindings = {"splits": _scratch(c), "step": c.step, "y": c.place[op.outputs[0]], **_sinks(c, op)}
    grid = (Count("sequences"), shape.heads, 1)
    kernel = shader("attention_merge", **constants, **shape.constants(c, op))
    return launch(kernel, bindings, grid, **_step(c, op, c.tuning.split, True))


def _step(c: Lowering, op: Op, split: int, singles: bool) -> dict[str, int]:
    """The parameters of ``shaders/wgsl/lib/step.wgsl``."""
    fields = {name: c.words[name] for name in (*_FIELDS, *(_MASKS if _masked(op) else ()))}
    return fields | {"window": op.integer("window"), "split": split, "singles": int(singles)}


def _sinks(c: Lowering, op: Op) -> dict[str, Region]:
    if not op.attribute("sinks"):
        return {}
    vector = c.weights[op.named["sinks"]]
    assert isinstance(vector, Vector)
    return {"sinks": vector.region}


def _masked(op: Op) -> bool:
    return _MASKS[0] in op.inputs
