"""From the ops of a model Program to launches: one function per kind, each next to the shader of the same name."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence

from pie_edge.backends.shared.fuse import FUSED
from pie_edge.backends.shared.grid import Count, Extent
from pie_edge.backends.shared.lowering import ACTIVATIONS, by_kind
from pie_edge.backends.shared.words import words
from pie_edge.backends.vulkan import lower_attention, lower_experts, lower_linear, lower_recurrent
from pie_edge.backends.vulkan.launch import Access, Binding, Kernel, Launch
from pie_edge.backends.vulkan.lowering import Lowering
from pie_edge.backends.vulkan.shaders import shader
from pie_edge.program.encodings import DType
from pie_edge.program.ops import Op

_WIDE = 64
"""Columns from which on a workgroup shares a sum."""


def embed(c: Lowering, op: Op) -> list[Launch]:
    table = c.matrix(op.inputs[0])
    packing, local = table.packing, c.tuning.interleaved
    constants = (local, packing.interleaved, packing.columns, packing.group, packing.scales, *packing.table)
    kernel = Kernel(shader(f"embed_{packing.format}"), constants)
    grid = (-(-packing.blocks // local), c.rows_of(op.inputs[1]), 1)
    return [
        Launch(
            kernel,
            (
                Binding(part.region),
                Binding(part.region),
                c.read(op.inputs[1]),
                c.read(op.inputs[2]),
                c.write(op.outputs[0]),
            ),
            grid,
            words(part.first, part.rows, part.scales // 4, op.number("scale"), packing.zero),
        )
        for part in table.parts
    ]


def rms_norm(c: Lowering, op: Op) -> list[Launch]:
    return [_norm(c, op, op.integer("groups"), op.inputs[1], (c.read(op.inputs[0]),), (c.write(op.outputs[0]),), "")]


def add_rms_norm(c: Lowering, op: Op) -> list[Launch]:
    x, residual, weight = op.inputs
    extra = (c.read(residual), c.write(op.outputs[0]))
    return [_norm(c, op, 1, weight, (c.read(x),), (c.write(op.outputs[1]), *extra), "add_")]


def _norm(
    c: Lowering, op: Op, groups: int, weight: str, x: tuple[Binding, ...], rest: tuple[Binding, ...], prefix: str
) -> Launch:
    vector = c.vector(weight)
    width = len(vector.values)
    kernel = Kernel(
        shader(f"{prefix}rms_norm{c.subgroups}"), (c.tuning.reduction, width, op.number("eps"), op.number("offset"))
    )
    return Launch(kernel, (*x, Binding(vector.region), *rest), (groups, c.rows_of(op.inputs[0]), 1))


def layer_norm(c: Lowering, op: Op) -> list[Launch]:
    x, weight, *bias = op.inputs
    regions = [c.vector(name).region for name in (weight, *(bias or (weight,)))]
    constants = (c.tuning.reduction, c.width(x), op.number("eps"), bool(bias))
    bindings = (c.read(x), *map(Binding, regions), c.write(op.outputs[0]))
    return [Launch(Kernel(shader(f"layer_norm{c.subgroups}"), constants), bindings, (1, c.rows_of(x), 1))]


def adapter_linear(c: Lowering, op: Op) -> list[Launch]:
    x, matrices, adapters, *base = op.inputs
    _, outputs, columns = c.program.values[matrices].shape
    wide = columns >= _WIDE
    local, name = (c.tuning.reduction, f"_wide{c.subgroups}") if wide else (c.tuning.elementwise, "")
    kernel = Kernel(shader(f"adapter_linear{name}"), (local, outputs, columns, bool(base)))
    bindings = (c.read(x), c.read(matrices), c.read(adapters), c.read(base[0] if base else x), c.write(op.outputs[0]))
    grid = (outputs, c.rows_of(x), 1) if wide else c.over(outputs, x)
    return [Launch(kernel, bindings, grid)]


def rope(c: Lowering, op: Op) -> list[Launch]:
    heads = op.integer("heads")
    width = c.width(op.inputs[0]) // heads
    constants = (c.tuning.elementwise, width, op.integer("rotary"), _neox(op), heads, op.number("magnitude"))
    table = Binding(c.frequencies(op, op.inputs[2:]))
    bindings = (c.read(op.inputs[0]), c.read(op.inputs[1]), table, c.write(op.outputs[0]))
    return [Launch(Kernel(shader("rope"), constants), bindings, c.over(heads * width // 2, op.inputs[0]))]


def rope_append(c: Lowering, op: Op) -> list[Launch]:
    heads, kv_heads = op.integer("heads"), op.integer("kv_heads")
    width, keys = c.width(op.inputs[0]) // heads, c.program.values[op.outputs[1]]
    name = "rope_append_f16" if keys.dtype is DType.F16 else "rope_append_f32"
    layout = (heads, kv_heads, width, op.integer("rotary"), _neox(op), op.integer("page_size"))
    constants = (c.tuning.elementwise, *layout, op.number("magnitude"))
    operands, factors = op.inputs[:5], op.inputs[5:]
    bindings = (*map(c.read, operands), Binding(c.frequencies(op, factors)), *map(c.write, op.outputs))
    items = heads * width // 2 + kv_heads * width * keys.dtype.nbytes // 16
    return [Launch(Kernel(shader(name), constants), bindings, c.over(items, op.inputs[0]))]


def _neox(op: Op) -> bool:
    return op.attribute("style") == "neox"


def kv_append(c: Lowering, op: Op) -> list[Launch]:
    keys = c.program.values[op.outputs[0]]
    heads, vector = op.integer("heads"), 16 // keys.dtype.nbytes
    width = c.width(op.inputs[0]) // heads
    name = "kv_append_f16" if keys.dtype is DType.F16 else "kv_append_f32"
    kernel = Kernel(shader(name), (c.tuning.elementwise, heads, width, op.integer("page_size")))
    bindings = (*(c.read(name) for name in op.inputs), *(c.write(name) for name in op.outputs))
    return [Launch(kernel, bindings, c.over(heads * width // vector, op.inputs[0]))]


def _elementwise(*attributes: str) -> Callable[[Lowering, Op], list[Launch]]:
    """A kind whose kernel takes each row's values by themselves."""

    def lowered(c: Lowering, op: Op) -> list[Launch]:
        x, target = op.inputs[0], c.place[op.outputs[0]]
        # A state may have more rows than are written: no more than those are bound.
        written = Binding(target.part(0, min(c.place[x].nbytes, target.nbytes)), Access.WRITE)
        constants = [_constant(op, name) for name in attributes]
        return [_by_row(c, op.kind, x, x, constants, (*map(c.read, op.inputs), written))]

    return lowered


def _by_row(
    c: Lowering, kind: str, x: str, rows: str, constants: Sequence[int | float], bindings: tuple[Binding, ...]
) -> Launch:
    """An invocation for every four values of x in each true row of ``rows``, or for each where fours don't divide it."""
    width = c.width(x)
    suffix, elements = ("", width // 4) if width % 4 == 0 else ("_words", width)
    kernel = Kernel(shader(f"{kind}{suffix}"), (c.tuning.elementwise, elements, *constants))
    return Launch(kernel, bindings, c.over(elements, rows))


def _constant(op: Op, name: str) -> int | float:
    return ACTIVATIONS[str(op.attribute(name))] if name == "act" else op.number(name)


def mul(c: Lowering, op: Op) -> list[Launch]:
    x, y = op.inputs
    kind = "mul" if c.width(x) == c.width(y) else "mul_rows"
    return [_by_row(c, kind, x, x, (), (c.read(x), c.read(y), c.write(op.outputs[0])))]


def gather_rows(c: Lowering, op: Op) -> list[Launch]:
    bindings = (c.read(op.inputs[0]), c.read(op.inputs[1]), c.write(op.outputs[0]))
    return [_by_row(c, op.kind, op.inputs[0], op.outputs[0], (), bindings)]


def combine_experts(c: Lowering, op: Op) -> list[Launch]:
    x, weights = op.inputs
    bindings = (c.read(x), c.read(weights), c.write(op.outputs[0]))
    return [_by_row(c, op.kind, op.outputs[0], weights, (c.width(weights),), bindings)]


def copy_pages(c: Lowering, op: Op) -> list[Launch]:
    state = c.program.values[op.outputs[0]]
    page = state.nbytes // state.shape[0]
    name, size = ("copy_pages", 16) if page % 16 == 0 else ("copy_pages_words", 4)
    elements = page // size
    kernel = Kernel(shader(name), (c.tuning.elementwise, elements))
    _, sources, targets = op.inputs
    bindings = (c.read(sources), c.read(targets), Binding(c.place[op.outputs[0]], Access.BOTH))
    copies: Extent = Count("passes")
    return [Launch(kernel, bindings, (-(-elements // c.tuning.elementwise), copies, 1))]


def copy_slots(c: Lowering, op: Op) -> list[Launch]:
    """All tokens into the scratch, then out of it: as if all were read before any is written."""
    state, axis, page = c.program.values[op.outputs[0]], op.integer("axis"), op.integer("page_size")
    inner = math.prod(state.shape[axis + 1 :]) * state.dtype.nbytes
    suffix, size = ("", 16) if inner % 16 == 0 else ("_words", 4)
    outer = math.prod(state.shape[1:axis])
    constants = (c.tuning.elementwise, outer, page, inner // size)
    grid = (-(-outer * inner // size // c.tuning.elementwise), Count("passes"), 1)
    _, sources, targets = op.inputs
    held, kept = c.place[op.outputs[0]], c.scratch
    assert kept is not None
    launches = []
    for name, slots, reads in (("gather", sources, True), ("scatter", targets, False)):
        bindings = (
            c.read(slots),
            Binding(held, Access.READ if reads else Access.WRITE),
            Binding(kept, Access.WRITE if reads else Access.READ),
        )
        launches.append(Launch(Kernel(shader(f"copy_slots_{name}{suffix}"), constants), bindings, grid))
    return launches


clamped_glu = _elementwise("slope", "limit")
glu = _elementwise("act")
activation = _elementwise("act")
add = _elementwise()
scale = _elementwise("factor")
softcap = _elementwise("cap")
store = _elementwise()

LOWER = by_kind(sys.modules[__name__], lower_attention, lower_experts, lower_linear, lower_recurrent)

KINDS = frozenset(LOWER) - FUSED
"""Kinds of the op table that have a kernel."""
