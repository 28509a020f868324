"""From the ops of a model Program to launches: one function per kind, each named like its kernel."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence

from pie_edge.backends.cuda import lower_attention, lower_experts, lower_linear, lower_recurrent
from pie_edge.backends.cuda.launch import Field, Kernel, Launch, arguments, packed
from pie_edge.backends.cuda.lowering import BLOCK, Lowering
from pie_edge.backends.shared.fuse import FUSED
from pie_edge.backends.shared.grid import Count
from pie_edge.backends.shared.lowering import ACTIVATIONS, by_kind
from pie_edge.errors import Unsupported
from pie_edge.program.encodings import DType
from pie_edge.program.ops import Op

_ELEMENTWISE, _ROPE, _NORM = "elementwise.cu", "rope.cu", "norm.cu"


def _threads(width: int) -> int:
    """Of a block that shares a row."""
    return min(max(32, 1 << (width // 4).bit_length()), 512)


def rms_norm(c: Lowering, op: Op) -> list[Launch]:
    x, weight = op.inputs
    width, groups = c.width(x) // op.integer("groups"), op.integer("groups")
    given = (c.place[x], c.vector(weight).region, c.place[op.outputs[0]], width, op.number("eps"), op.number("offset"))
    grid = (c.rows_of(x), groups, 1)
    return [Launch(Kernel(_NORM, "rms_norm"), arguments(*given, c.counter(x)), grid, _threads(width))]


def add_rms_norm(c: Lowering, op: Op) -> list[Launch]:
    x, residual, weight = op.inputs
    width = c.width(x)
    given: tuple[Field, ...] = (
        *c.at(x, residual),
        c.vector(weight).region,
        *c.at(*op.outputs),
        width,
        op.number("eps"),
        op.number("offset"),
    )
    grid = (c.rows_of(x), 1, 1)
    return [Launch(Kernel(_NORM, "add_rms_norm"), arguments(*given, c.counter(x)), grid, _threads(width))]


def layer_norm(c: Lowering, op: Op) -> list[Launch]:
    x, weight, *bias = op.inputs
    extra = c.vector(bias[0]).region if bias else None
    given: tuple[Field, ...] = (
        c.place[x],
        c.vector(weight).region,
        extra,
        c.place[op.outputs[0]],
        c.width(x),
        op.number("eps"),
    )
    grid = (c.rows_of(x), 1, 1)
    return [Launch(Kernel(_NORM, "layer_norm"), arguments(*given, c.counter(x)), grid, _threads(c.width(x)))]


def adapter_linear(c: Lowering, op: Op) -> list[Launch]:
    x, matrices, adapters, *base = op.inputs
    _, outputs, columns = c.program.values[matrices].shape
    given = (*c.at(x, matrices, adapters), c.place[base[0]] if base else None, c.place[op.outputs[0]])
    grid = (c.rows_of(x), -(-outputs // 8), 1)
    told = arguments(*given, outputs, columns, c.counter(x))
    return [Launch(Kernel("adapter.cu", "adapter_linear"), told, grid, 256)]


def rope(c: Lowering, op: Op) -> list[Launch]:
    x, positions, *factors = op.inputs
    heads, width = op.integer("heads"), c.width(x) // op.integer("heads")
    shape, pairs = _rope_shape(c, op, heads, width, factors), heads * width // 2
    return c.by_row(_ROPE, "rope", x, pairs, shape, *c.at(x, positions, op.outputs[0]))


def rope_append(c: Lowering, op: Op) -> list[Launch]:
    q, k, v, positions, slots, *factors = op.inputs
    y, *cache = op.outputs
    heads, kv_heads = op.integer("heads"), op.integer("kv_heads")
    width = c.width(q) // heads
    given: tuple[Field | bytes, ...] = (
        _rope_shape(c, op, heads, width, factors),
        _cache(c, cache, kv_heads, op.integer("page_size")),
        *c.at(q, k, v, positions, slots, y),
    )
    return c.by_row(_ROPE, "rope_append", q, (heads + 2 * kv_heads) * width // 2, *given)


def _rope_shape(c: Lowering, op: Op, heads: int, width: int, factors: Sequence[str]) -> bytes:
    """The structure ``Rope``."""
    if width % 2:
        raise Unsupported(f"{op}: heads of {width} values; the CUDA backend takes an even width")
    neox = op.attribute("style") == "neox"
    return packed(c.frequencies(op, factors), heads, width, op.integer("rotary"), neox, op.number("magnitude"))


def _cache(c: Lowering, names: Sequence[str], heads: int, page: int) -> bytes:
    """The structure ``Cache``."""
    return packed(*c.at(*names), heads, page, c.program.values[names[0]].dtype is DType.F16)


def kv_append(c: Lowering, op: Op) -> list[Launch]:
    k, v, positions, slots = op.inputs
    heads = op.integer("heads")
    width = c.width(k) // heads
    cache = _cache(c, op.outputs, heads, op.integer("page_size"))
    return c.by_row(_ROPE, "kv_append", k, heads * width, cache, *c.at(k, v, positions, slots), width)


def _elementwise(*attributes: str) -> Callable[[Lowering, Op], list[Launch]]:
    """A kind whose kernel takes each row's values by themselves."""

    def lowered(c: Lowering, op: Op) -> list[Launch]:
        x, width = op.inputs[0], c.width(op.inputs[0])
        told = [ACTIVATIONS[str(op.attribute(n))] if n == "act" else op.number(n) for n in attributes]
        return c.by_row(_ELEMENTWISE, op.kind, x, width, *c.at(*op.inputs, op.outputs[0]), width, *told)

    return lowered


def mul(c: Lowering, op: Op) -> list[Launch]:
    x, y = op.inputs
    given: tuple[Field, ...] = (*c.at(x, y, op.outputs[0]), c.width(x), c.width(y) if c.width(x) > 1 else 1)
    return c.by_row(_ELEMENTWISE, "mul", x, c.width(x), *given)


def gather_rows(c: Lowering, op: Op) -> list[Launch]:
    (y,) = op.outputs
    return c.by_row(_ELEMENTWISE, op.kind, y, c.width(y), *c.at(*op.inputs, y), c.width(y))


def combine_experts(c: Lowering, op: Op) -> list[Launch]:
    x, weights = op.inputs
    (y,) = op.outputs
    return c.by_row(_ELEMENTWISE, op.kind, weights, c.width(y), *c.at(x, weights, y), c.width(y), c.width(weights))


def copy_pages(c: Lowering, op: Op) -> list[Launch]:
    counts, sources, targets = op.inputs
    state = c.program.values[op.outputs[0]]
    words = state.nbytes // state.shape[0] // 4
    given = arguments(*c.at(sources, targets, op.outputs[0]), words, c.place[counts])
    grid = (-(-words // BLOCK), Count("passes"), 1)
    return [Launch(Kernel(_ELEMENTWISE, "copy_pages"), given, grid, BLOCK)]


def copy_slots(c: Lowering, op: Op) -> list[Launch]:
    """All tokens into the scratch, then out of it: as if all were read before any is written."""
    counts, sources, targets = op.inputs
    state, axis, page = c.program.values[op.outputs[0]], op.integer("axis"), op.integer("page_size")
    inner = math.prod(state.shape[axis + 1 :]) * state.dtype.nbytes // 4
    outer = math.prod(state.shape[1:axis])
    launches = []
    for slots, back in ((sources, 0), (targets, 1)):
        given: tuple[Field, ...] = (*c.at(slots, op.outputs[0]), c.room, outer, page, inner, back, c.place[counts])
        grid = (-(-outer * inner // BLOCK), Count("passes"), 1)
        launches.append(Launch(Kernel(_ELEMENTWISE, "copy_slots"), arguments(*given), grid, BLOCK))
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
