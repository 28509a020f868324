"""Attention of the step's rows over their sequences' pages."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from pie_edge.backends.metal.context import Arrays, Context
from pie_edge.backends.metal.launch import Kernel, Launch
from pie_edge.backends.metal.ops.attended import sequences, weights_of
from pie_edge.backends.metal.ops.matrices import NO_WORDS, NOTHING
from pie_edge.errors import Unsupported
from pie_edge.program.ops import Op

_FIELDS = ("positions", "row_index", "page_starts", "pages", "page_bits", "fresh_bits")
_KERNEL = Kernel(
    "attention",
    ("q", "keys", "values", "key_positions", "tiles", "row_starts", *_FIELDS, "mask", "sinks", "numbers"),
    ("y",),
    ("attention",),
)
_QUERIES = 8
"""Rows and heads that a simdgroup takes together: it holds a part of what each gives in registers."""
_ROOM = 28 << 10
"""Bytes of threadgroup memory that queries and what simdgroups leave each other may take, of the 32 KiB that there are."""


def ops(c: Context, op: Op, q: mx.array, keys: mx.array, values: mx.array, *fields: Any) -> Arrays:
    parts = []
    for sequence in sequences(c, op):
        if not sequence.rows:
            continue
        weights = weights_of(c, op, sequence, q, keys, fields)
        # V pages [n,G,P,D] -> [G, n·P, D]
        v = mx.take(values, sequence.device_pages, axis=0).swapaxes(0, 1)
        v = v.reshape(v.shape[0], -1, v.shape[-1]).astype(mx.float32)
        attended = weights.reshape(v.shape[0], -1, weights.shape[-1]) @ v
        # [G, T·H/G, D] -> [T, H·D]
        by_row = attended.reshape(v.shape[0], sequence.rows, -1, v.shape[-1]).swapaxes(0, 1)
        parts.append(by_row.reshape(sequence.rows, q.shape[1]))
    return (mx.concatenate(parts) if len(parts) != 1 else parts[0],) if parts else (mx.zeros(q.shape),)


def kernel(
    c: Context, op: Op, q: mx.array, keys: mx.array, values: mx.array, key_positions: mx.array, *rest: Any
) -> Arrays:
    fields, named = c.fields(op), op.named
    heads, kv_heads = op.integer("heads"), op.integer("kv_heads")
    width, sharing = q.shape[1] // heads, heads // kv_heads
    queries = most_queries(width)
    together = max(n for n in range(1, min(sharing, queries) + 1) if sharing % n == 0)
    several = q.shape[0] > len(fields["query_starts"]) - 1
    rows = max(queries // together, 1) if several else 1
    count, tiles = c.once(("tiles", rows, "mask" in fields), lambda: _tiles(fields, rows))
    parts, cap = simdgroups(rows * together, width), op.number("softcap")
    optional = {name: array for name, array in zip(list(named)[4:], rest, strict=True) if name == "sinks"}
    step = (c.words(named[name]) for name in ("query_starts", *_FIELDS))
    given = (
        *(("ROWS", rows), ("TOGETHER", together), ("PARTS", parts), ("PAGE", op.integer("page_size"))),
        *(("HEADS", heads), ("KV_HEADS", kv_heads), ("WIDTH", width), ("VECTOR", keys.shape[4])),
        *(("WINDOW", op.integer("window")), ("CAPPED", cap > 0), ("SINKS", "sinks" in optional)),
    )
    launch = Launch(
        _KERNEL,
        (
            q,
            keys,
            values,
            key_positions,
            tiles,
            *step,
            c.words(named["mask"]) if "mask" in fields else NO_WORDS,
            optional.get("sinks", NOTHING),
            c.numbers(op.number("scale"), cap),
        ),
        ((q.shape, mx.float32),),
        (32, parts, count * heads // together),
        (32, parts, 1),
        given,
    )
    return c.launch(launch)


def simdgroups(queries: int, width: int) -> int:
    """Simdgroups of a threadgroup, as many as there is room for."""
    return next(parts for parts in (8, 4, 2, 1) if shared_bytes(queries, parts, width) <= _ROOM or parts == 1)


def shared_bytes(queries: int, parts: int, width: int) -> int:
    """Of a threadgroup: the queries, and of each simdgroup its sums of one, and two numbers of each."""
    return 4 * (queries * width + parts * (width + 2 * queries))


def most_queries(width: int) -> int:
    """Raises Unsupported for heads so wide that one doesn't fit."""
    for queries in (_QUERIES, 4, 2, 1):
        if shared_bytes(queries, 1, width) <= _ROOM:
            return queries
    widest = _ROOM // 8 - 1
    raise Unsupported(
        f"Metal's kernel attention takes heads of up to {widest} values, not of {width}; use --backend cpu"
    )


def _tiles(fields: dict[str, NDArray[Any]], rows: int) -> tuple[int, mx.array]:
    """How many, and [n, 4]: of each its first row, how many it has, its sequence, and where that one's masks begin, from 1 on."""
    found: list[tuple[int, int, int, int]] = []
    for s, (first, last) in enumerate(pairwise(fields["query_starts"].tolist())):
        masked = int(fields["mask_starts"][s]) if "mask" in fields else 0
        found += [(at, min(rows, last - at), s, masked) for at in range(first, last, rows)]
    return len(found), mx.array(np.array([*found, (0, 0, 0, 0)], np.uint32))
