"""Launches of ``attention``: decodes split over their keys, prefills in tiles of rows, each only where a step has them."""

from __future__ import annotations

import math

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
from pie_edge.backends.shared.region import span
from pie_edge.backends.shared.tuning import AttentionVariant
from pie_edge.backends.shared.words import words
from pie_edge.backends.vulkan.launch import Access, Binding, Kernel, Launch, Module, Texels
from pie_edge.backends.vulkan.lowering import Lowering
from pie_edge.backends.vulkan.memory import Region
from pie_edge.backends.vulkan.shaders import shader
from pie_edge.program.ops import Op


def attention(c: Lowering, op: Op) -> list[Launch]:
    """Up to three launches: decodes, what joins their splits, and rows of sequences with several."""
    return launches(c, op, _attend, _merge, _by_row)


def attention_mass(c: Lowering, op: Op) -> list[Launch]:
    """A workgroup for each row that may be observed; those past the true ones leave at once."""
    shape = Shape.of(c, op)
    constants = (
        *(c.tuning.reduction, shape.sharing, shape.kv_heads, shape.width, shape.page),
        *(op.number("scale"), op.number("softcap"), masked(op), has_sinks(op)),
    )
    step, fields = _step(c, op, keys=0, singles=False, observed=True)
    bindings = (*(c.read(name) for name in op.inputs[:3]), Binding(step), Binding(c.place[op.outputs[0]], Access.BOTH))
    bindings = (*bindings, _sinks(c, op, step))
    kernel = Kernel(_shader(shape, "attention_mass", False, c.subgroups), constants)
    return [Launch(kernel, bindings, (c.capacity("mass_rows"), 1, 1), fields + words(op.integer("layer")))]


def _shader(shape: Shape, kind: str, texels: bool, suffix: str = "") -> Module:
    return shader(f"{kind}_{'f16' if shape.halves else 'f32'}{'_texels' if texels else ''}{suffix}")


def _by_row(c: Lowering, op: Op, shape: Shape) -> Launch:
    local, together = c.tuning.by_row, shape.together(c.tuning.held)
    constants = (
        *(local, shape.sharing, shape.kv_heads, shape.width, shape.page, together),
        *(op.number("scale"), op.number("softcap"), masked(op), has_sinks(op)),
    )
    step, fields = _step(c, op, keys=0, singles=False)
    texels = _reads_texels(c, op)
    bindings = (*_operands(c, op, step, texels), c.write(op.outputs[0]), _sinks(c, op, step))
    grid = (Count("rows", divisor=local), shape.heads // together, 1)
    return Launch(Kernel(_shader(shape, "attention_rows", texels), constants), bindings, grid, fields)


def _attend(c: Lowering, op: Op, shape: Shape, variant: AttentionVariant, singles: bool) -> Launch:
    keys = split(c, shape, variant.chunk) if singles else 0
    constants = (
        *(variant.local, variant.rows, shape.sharing, shape.kv_heads, shape.width, shape.page, variant.chunk),
        *(math.gcd(variant.local, shape.vectors), op.number("scale"), op.number("softcap")),
        *(masked(op), has_sinks(op)),
    )
    step, fields = _step(c, op, keys, singles)
    partial = c.room if singles else c.place[op.outputs[0]]
    texels = _reads_texels(c, op)
    results = (c.write(op.outputs[0]), Binding(partial, Access.WRITE))
    bindings = (*_operands(c, op, step, texels), *results, _sinks(c, op, step))
    grid = (Count("rows", divisor=variant.rows), shape.kv_heads, splits(c, shape, keys) if singles else 1)
    return Launch(Kernel(_shader(shape, "attention", texels, c.subgroups), constants), bindings, grid, fields)


def _reads_texels(c: Lowering, op: Op) -> bool:
    return c.as_texels(*(c.place[name] for name in op.inputs[:3]))


def _operands(c: Lowering, op: Op, step: Region, texels: bool) -> tuple[Binding, ...]:
    kinds = (Texels.FLOATS, Texels.FOURS, Texels.FOURS) if texels else (None, None, None)
    read = (Binding(c.place[name], texels=kind) for name, kind in zip(op.inputs, kinds, strict=False))
    return (*read, c.read(op.inputs[3]), Binding(step))


def _merge(c: Lowering, op: Op, shape: Shape) -> Launch:
    constants = (c.tuning.reduction, shape.heads, shape.width, shape.page, has_sinks(op))
    step, fields = _step(c, op, c.tuning.split, singles=True)
    bindings = (Binding(c.room), Binding(step), c.write(op.outputs[0]), _sinks(c, op, step))
    grid = (Count("sequences"), shape.heads, 1)
    return Launch(Kernel(shader("attention_merge"), constants), bindings, grid, fields)


def _step(c: Lowering, op: Op, keys: int, singles: bool, observed: bool = False) -> tuple[Region, bytes]:
    """The region that holds all fields of the step, and the push constants of ``shaders/glsl/step.glsl``."""
    masks, masses = MASKS if masked(op) else (), OBSERVED if observed else ()
    regions = {name: c.place[name] for name in (*FIELDS, *masks, *masses)}
    whole = span(list(regions.values()))

    def places(names: tuple[str, ...]) -> tuple[int, ...]:
        return tuple((regions[name].offset - whole.offset) // 4 for name in names)

    told = words(*places(FIELDS), op.integer("window"), keys, singles, *(places(masks) or (0, 0)), *places(masses))
    return whole, told


def _sinks(c: Lowering, op: Op, otherwise: Region) -> Binding:
    """The heads' sinks. A kernel that is told there are none wants something bound all the same."""
    if not has_sinks(op):
        return Binding(otherwise)
    return Binding(c.vector(op.named["sinks"]).region)
