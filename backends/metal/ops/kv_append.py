"""This pass's keys, values and positions into their slots of the cache."""

from __future__ import annotations

from collections.abc import Hashable

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from pie_edge.backends.metal.context import Arrays, Context
from pie_edge.backends.metal.ops.paged import scattered
from pie_edge.program.ops import Op


def ops(
    c: Context,
    op: Op,
    k: mx.array,
    v: mx.array,
    positions: mx.array,
    write_slots: mx.array,
    keys: mx.array,
    values: mx.array,
    key_positions: mx.array,
) -> Arrays:
    return append(c, op, (k, v, positions), c.inputs[op.inputs[3]], (keys, values, key_positions))


def append(
    c: Context, op: Op, new: tuple[mx.array, ...], slots: NDArray[np.uint32], cache: tuple[mx.array, ...]
) -> Arrays:
    """The cache with what is ``new`` in these slots."""
    (k, v, positions), (keys, values, key_positions) = new, cache
    size, heads, vector, width = op.integer("page_size"), keys.shape[1], keys.shape[4], values.shape[3]
    by_vector, by_head = (_places(c, slots, size, outer) for outer in (heads * keys.shape[2], heads))
    return (
        scattered(keys, by_vector, k.astype(keys.dtype).reshape(-1, vector), vector),
        scattered(values, by_head, v.astype(values.dtype).reshape(-1, width), width),
        scattered(key_positions, slots, positions.reshape(-1, 1), 1),
    )


def _places(c: Context, slots: NDArray[np.uint32], size: int, outer: int) -> NDArray[np.uint32]:
    """Of a cache as rows, those of each token: ``outer`` of them, which lie ``size`` apart."""

    def made() -> NDArray[np.uint32]:
        pages, within = np.divmod(slots.astype(np.int64), size)
        places = (pages[:, None] * outer + np.arange(outer)) * size + within[:, None]
        return places.reshape(-1).astype(np.uint32)

    key: Hashable = ("places", size, outer)
    return c.once(key, made)
