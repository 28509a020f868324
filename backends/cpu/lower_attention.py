"""Attention in instructions: ``kernels/attention.c`` and ``kernels/attention_mass.c``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pie_edge.backends.cpu.instructions import Argument, Ref
from pie_edge.errors import Unsupported
from pie_edge.program.ops import Op

if TYPE_CHECKING:
    from pie_edge.backends.cpu.lowering import Lowering

SPAN_KEYS, TILE_ROWS = 256, 8
"""As in the kernels."""
_ROOM_BYTES = 16 << 10
"""What ``struct room`` of ``attention.c`` takes before its results, and some."""
_MASS_ROOM_BYTES = 1 << 10
"""The same of ``attention_mass.c``, before its pages."""
_SCORED = ("positions", "row_index", "query_starts", "page_starts", "pages", "page_bits", "fresh_bits")


def attention(low: Lowering, op: Op) -> None:
    given, scored = op.named, _scored(low, op)
    heads, kv_heads = op.integer("heads"), op.integer("kv_heads")
    pages, starts = (low.value(given[name]).shape[0] for name in ("pages", "page_starts"))
    result = (low.value(given["q"]).shape[1] // heads + 4) * 4
    spans = pages // (SPAN_KEYS // op.integer("page_size")) + starts + 1
    partials = low.temporary(f"#partials{len(low.instructions)}", spans * heads * result)
    y = op.outputs[0]
    arguments = (*scored, Ref(y), Ref(given["V"]), Ref(partials), Ref("counts"))
    scratch = _ROOM_BYTES + (TILE_ROWS * heads // kv_heads + 2) * result
    low.emit("attention", arguments, Op(op.kind, op.inputs, (y, partials)), given["q"], scratch)
    low.emit("attention_merge", arguments, Op(op.kind, (*op.inputs, partials), (y,)), given["q"], scratch)


def attention_mass(low: Lowering, op: Op) -> None:
    given, scored = op.named, _scored(low, op)
    observed = low.value(given["mass_rows"]).shape[0]
    fields = (Ref(given[name]) for name in ("mass_rows", "mass_starts", "mass_layers"))
    scratch = _MASS_ROOM_BYTES + 16 * low.value(given["pages"]).shape[0]
    low.emit(op.kind, (*scored, Ref(op.outputs[0]), *fields, op.integer("layer"), observed), op, None, scratch)


def check_width(op: Op, width: int) -> None:
    """Raises Unsupported for a width of heads that the kernels don't take."""
    if width % 4:
        raise Unsupported(f"{op}: the cpu backend takes heads of a multiple of four values, not {width}")


def _scored(low: Lowering, op: Op) -> tuple[Argument, ...]:
    """The first fields of ``struct attention``: what a query's scores with its keys take."""
    given, page_size = op.named, op.integer("page_size")
    heads, width = op.integer("heads"), low.value(given["q"]).shape[1] // op.integer("heads")
    check_width(op, width)
    if page_size not in (4, 8, 16, 32):
        raise Unsupported(f"{op}: the cpu backend has pages of 4, 8, 16 or 32 tokens")
    fields = ("q", "K", "key_positions", *_SCORED)
    refs: tuple[Argument, ...] = tuple(Ref(given[name]) for name in fields)
    optional: tuple[Argument, ...] = tuple(
        Ref(given[name]) if name in given else 0 for name in ("mask_starts", "mask", "sinks")
    )
    sizes = (heads, op.integer("kv_heads"), width, page_size, low.value(given["K"]).shape[0], op.integer("window"))
    return (*refs, *optional, *sizes, op.number("scale"), op.number("softcap"))
