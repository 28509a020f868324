"""What attention's weights are, sequence by sequence, by MLX's ops: a part of attention and of what observes it."""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from pie_edge.backends.metal.context import Context
from pie_edge.program import reference
from pie_edge.program.ops import Op

_LEAST, _NOTHING = -1e30, 1e-30


@dataclass(frozen=True)
class Sequence:
    """A sequence of a step: its rows from ``first`` on, its page entries, and which keys each row may see."""

    first: int
    rows: int
    device_pages: mx.array
    seen: mx.array
    """[rows, keys], but for the window."""
    positions: mx.array


def sequences(c: Context, op: Op) -> list[Sequence]:
    fields = c.fields(op)
    key = ("sequences", op.integer("page_size"), "mask" in fields)
    return c.once(key, lambda: [_sequence(op, s, fields) for s in range(len(fields["query_starts"]) - 1)])


def _sequence(op: Op, s: int, fields: dict[str, NDArray[Any]]) -> Sequence:
    (first, last), (begin, end) = (fields[name][s : s + 2].tolist() for name in ("query_starts", "page_starts"))
    rows, entries, size = slice(first, last), slice(begin, end), op.integer("page_size")
    nowhere = np.empty(0, np.uint32)
    bits, fresh, index = fields["page_bits"][entries], fields["fresh_bits"][entries], fields["row_index"][rows]
    seen = reference.visible(0, bits, fresh, index, nowhere, nowhere, size)
    if "mask" in fields and fields["mask_starts"][s]:
        seen &= reference.allowed(fields["mask"][fields["mask_starts"][s] - 1 :], len(seen), end - begin, size)
    positions = fields["positions"][rows].astype(np.int32)
    return Sequence(first, last - first, mx.array(fields["pages"][entries]), mx.array(seen), mx.array(positions))


def weights_of(c: Context, op: Op, sequence: Sequence, q: mx.array, keys: mx.array, fields: Items[Any]) -> mx.array:
    """[G, rows, H/G, keys]: the softmax over what each row sees, zeros for a row that sees nothing."""
    given = dict(zip(list(op.named)[-len(fields) :], fields, strict=True))
    kv_heads, cap = op.integer("kv_heads"), op.number("softcap")
    # K pages [n,G,D/v,P,v] -> [G, D, n·P]
    k = mx.take(keys, sequence.device_pages, axis=0).transpose(1, 2, 4, 0, 3)
    k = k.reshape(kv_heads, -1, k.shape[3] * k.shape[4]).astype(mx.float32)
    queries = q[sequence.first : sequence.first + sequence.rows].reshape(sequence.rows, kv_heads, -1, k.shape[1])
    scores = (queries.swapaxes(0, 1).reshape(kv_heads, -1, k.shape[1]) * op.number("scale")) @ k
    scores = scores.reshape(kv_heads, sequence.rows, -1, k.shape[2])
    if cap > 0:
        scores = cap * mx.tanh(scores / cap)
    seen = _seen(c, op, sequence, given["key_positions"])
    scores = mx.where(seen[None, :, None], scores, -mx.inf)
    peak = mx.maximum(scores.max(axis=-1, keepdims=True), _LEAST)
    if "sinks" not in given:
        weights = mx.exp(scores - peak)
        return weights / mx.maximum(weights.sum(axis=-1, keepdims=True), _NOTHING)
    sinks = given["sinks"].reshape(kv_heads, 1, -1, 1)
    peak = mx.maximum(peak, sinks)
    weights = mx.exp(scores - peak)
    return weights / mx.maximum(weights.sum(axis=-1, keepdims=True) + mx.exp(sinks - peak), _NOTHING)


def _seen(c: Context, op: Op, sequence: Sequence, key_positions: mx.array) -> mx.array:
    """[rows, keys], the window, which goes by position, included."""
    window = op.integer("window")
    if not window:
        return sequence.seen
    places = mx.take(key_positions, sequence.device_pages, axis=0).reshape(1, -1).astype(mx.int32)
    return sequence.seen & (sequence.positions[:, None] - places < window)
