"""Launches of ``attention``: decodes split over their keys, prefills in tiles of rows, each only where a step has them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pie_edge.backends.shared.grid import Count, Extent
from pie_edge.backends.shared.region import span
from pie_edge.backends.shared.tuning import AttentionVariant
from pie_edge.backends.shared.weights import Vector
from pie_edge.backends.vulkan.launch import Access, Binding, Kernel, Launch, Module, Texels, words
from pie_edge.backends.vulkan.lowering import Lowering
from pie_edge.backends.vulkan.memory import Region
from pie_edge.backends.vulkan.shaders import shader
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
    constants = (
        *(c.tuning.reduction, shape.sharing, shape.kv_heads, shape.width, shape.page),
        *(op.number("scale"), op.number("softcap"), _masked(op), _has_sinks(op)),
    )
    step, fields = _step(c, op, split=0, singles=False, observed=True)
    bindings = (*(c.read(name) for name in op.inputs[:3]), Binding(step), Binding(c.place[op.outputs[0]], Access.BOTH))
    bindings = (*bindings, _sinks(c, op, step))
    kernel = Kernel(shape.shader("attention_mass", False, c.subgroups), constants)
    return [Launch(kernel, bindings, (c.capacity("mass_rows"), 1, 1), fields + words(op.integer("layer")))]


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

    def shader(self, kind: str, texels: bool, suffix: str = "") -> Module:
        return shader(f"{kind}_{'f16' if self.halves else 'f32'}{'_texels' if texels else ''}{suffix}")


def _by_row(c: Lowering, op: Op, shape: _Shape) -> Launch:
    local, most = c.tuning.by_row, c.tuning.held // shape.width
    together = max(n for n in range(1, shape.sharing + 1) if shape.sharing % n == 0 and n <= most)
    constants = (
        *(local, shape.sharing, shape.kv_heads, shape.width, shape.page, together),
        *(op.number("scale"), op.number("softcap"), _masked(op), _has_sinks(op)),
    )
    step, fields = _step(c, op, split=0, singles=False)
    texels = _reads_texels(c, op)
    bindings = (*_operands(c, op, step, texels), c.write(op.outputs[0]), _sinks(c, op, step))
    grid = (Count("rows", divisor=local), shape.heads // together, 1)
    return Launch(Kernel(shape.shader("attention_rows", texels), constants), bindings, grid, fields)


def _attend(c: Lowering, op: Op, shape: _Shape, variant: AttentionVariant, singles: bool) -> Launch:
    split = _split(c, shape, variant.chunk) if singles else 0
    constants = (
        *(variant.local, variant.rows, shape.sharing, shape.kv_heads, shape.width, shape.page, variant.chunk),
        *(math.gcd(variant.local, shape.vectors), op.number("scale"), op.number("softcap")),
        *(_masked(op), _has_sinks(op)),
    )
    step, fields = _step(c, op, split, singles)
    partial = _scratch(c) if singles else c.place[op.outputs[0]]
    texels = _reads_texels(c, op)
    results = (c.write(op.outputs[0]), Binding(partial, Access.WRITE))
    bindings = (*_operands(c, op, step, texels), *results, _sinks(c, op, step))
    grid = (Count("rows", divisor=variant.rows), shape.kv_heads, _splits(c, shape, split) if singles else 1)
    return Launch(Kernel(shape.shader("attention", texels, c.subgroups), constants), bindings, grid, fields)


def _reads_texels(c: Lowering, op: Op) -> bool:
    return c.as_texels(*(c.place[name] for name in op.inputs[:3]))


def _operands(c: Lowering, op: Op, step: Region, texels: bool) -> tuple[Binding, ...]:
    kinds = (Texels.FLOATS, Texels.FOURS, Texels.FOURS) if texels else (None, None, None)
    read = (Binding(c.place[name], texels=kind) for name, kind in zip(op.inputs, kinds, strict=False))
    return (*read, c.read(op.inputs[3]), Binding(step))


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
    constants = (c.tuning.reduction, shape.heads, shape.width, shape.page, _has_sinks(op))
    step, fields = _step(c, op, c.tuning.split, singles=True)
    bindings = (Binding(_scratch(c)), Binding(step), c.write(op.outputs[0]), _sinks(c, op, step))
    grid = (Count("sequences"), shape.heads, 1)
    return Launch(Kernel(shader("attention_merge"), constants), bindings, grid, fields)


def _step(c: Lowering, op: Op, split: int, singles: bool, observed: bool = False) -> tuple[Region, bytes]:
    """The region that holds all fields of the step, and the push constants of ``shaders/glsl/step.glsl``."""
    masks, masses = _MASKS if _masked(op) else (), _OBSERVED if observed else ()
    regions = {name: c.place[name] for name in (*_FIELDS, *masks, *masses)}
    whole = span(list(regions.values()))

    def places(names: tuple[str, ...]) -> tuple[int, ...]:
        return tuple((regions[name].offset - whole.offset) // 4 for name in names)

    told = words(*places(_FIELDS), op.integer("window"), split, singles, *(places(masks) or (0, 0)), *places(masses))
    return whole, told


def _has_sinks(op: Op) -> bool:
    return bool(op.attribute("sinks"))


def _sinks(c: Lowering, op: Op, otherwise: Region) -> Binding:
    """The heads' sinks. A kernel that is told there are none wants something bound all the same."""
    if not _has_sinks(op):
        return Binding(otherwise)
    vector = c.weights[op.named["sinks"]]
    assert isinstance(vector, Vector)
    return Binding(vector.region)


def _masked(op: Op) -> bool:
    return _MASKS[0] in op.inputs
