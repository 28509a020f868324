"""Tokens of a paged state over others of it, as if all were read before any is written."""

from __future__ import annotations

import math

import mlx.core as mx
import numpy as np

from pie_edge.backends.metal.context import Arrays, Context
from pie_edge.backends.metal.ops.paged import scattered
from pie_edge.program.ops import Op


def ops(c: Context, op: Op, counts: mx.array, sources: mx.array, targets: mx.array, state: mx.array) -> Arrays:
    count, size, axis = int(c.inputs[op.inputs[0]][0]), op.integer("page_size"), op.integer("axis")
    if not count:
        return (state,)
    outer, inner = math.prod(state.shape[1:axis]), math.prod(state.shape[axis + 1 :])
    places = [_places(c.inputs[name][:count], size, outer) for name in op.inputs[1:3]]
    copied = mx.take(state.reshape(-1, inner), mx.array(places[0]), axis=0)
    # As in copy_pages.
    mx.eval(copied)
    return (scattered(state, places[1], copied, inner),)


def _places(slots: np.ndarray, size: int, outer: int) -> np.ndarray:
    """Of the state as rows of what a slot has together, those of these slots."""
    pages, within = np.divmod(slots.astype(np.int64), size)
    return (((pages[:, None] * outer + np.arange(outer)) * size) + within[:, None]).reshape(-1).astype(np.uint32)
