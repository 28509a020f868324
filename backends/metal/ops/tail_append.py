"""The last rows of each sequence over their places of the tail."""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from pie_edge.backends.metal.context import Arrays, Context
from pie_edge.backends.metal.ops.paged import scattered
from pie_edge.backends.metal.ops.recurrent import talks
from pie_edge.program.ops import Op


def ops(
    c: Context,
    op: Op,
    x: mx.array,
    query_starts: mx.array,
    state_slots: mx.array,
    state_spans: mx.array,
    tail: mx.array,
) -> Arrays:
    length, rows, places = tail.shape[1], [], []
    for talk in talks(c, op):
        first, own = talk.last(length)
        rows.append(first + np.arange(len(own)))
        places.append(talk.home * length + own)
    if not rows:
        return (tail,)
    written = mx.take(x, mx.array(np.concatenate(rows).astype(np.uint32)), axis=0)
    return (scattered(tail, np.concatenate(places).astype(np.uint32), written, tail.shape[2]),)
