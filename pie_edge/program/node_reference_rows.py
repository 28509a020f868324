"""Row nodes in NumPy: softmax and its kin, order, thresholds, indexing, bit masks (see ``node_reference.py``).

Arrays have the batch axis first; axes are negative. Whatever has no axis argument works along the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# Softmax and its kin. An entry equal to the maximum counts exp(0): no infinity makes a NaN.


def _below_maximum(x: Array, axis: int) -> tuple[Array, Array]:
    best = x.max(axis=axis, keepdims=True)
    shifted = x - best
    if not np.isfinite(best).all():
        shifted[x == best] = 0
    return shifted, best


def logsumexp(x: Array, axis: int, keepdims: bool) -> Array:
    shifted, best = _below_maximum(x, axis)
    found: Array = best + np.log(np.exp(shifted).sum(axis=axis, keepdims=True))
    return found if keepdims else found.squeeze(axis)


def softmax(x: Array, axis: int) -> Array:
    weights: Array = np.exp(_below_maximum(x, axis)[0])
    weights /= weights.sum(axis=axis, keepdims=True)
    return weights


def log_softmax(x: Array, axis: int) -> Array:
    shifted = _below_maximum(x, axis)[0]
    shifted -= np.log(np.exp(shifted).sum(axis=axis, keepdims=True))
    return shifted


def entropy(x: Array, axis: int, keepdims: bool) -> Array:
    """log Z − Σ p·(x − max), where an impossible entry adds nothing."""
    shifted = _below_maximum(x, axis)[0]
    weights = np.exp(shifted)
    total = weights.sum(axis=axis, keepdims=True)
    possible = np.where(weights > 0, shifted, np.float32(0))
    found: Array = np.log(total) - (weights * possible).sum(axis=axis, keepdims=True) / total
    return found if keepdims else found.squeeze(axis)


# Order. Ties go to the lowest index.


def top_k(x: Array, count: int) -> tuple[Array, Array]:
    """The largest entries of each row in falling order, and where they are."""
    flat = x.reshape(-1, x.shape[-1])
    places = np.empty((len(flat), count), dtype=np.uint32)
    for index, row in enumerate(flat):
        able = np.flatnonzero(~(row < kth_largest(row, count)))  # NaN compares with nothing, and is an entry
        places[index] = able[_falling_order(row[able])[:count]]
    places = places.reshape(*x.shape[:-1], count)
    return np.take_along_axis(x, places.astype(np.intp), axis=-1), places


def sort(x: Array, descending: bool) -> tuple[Array, Array]:
    order = _falling_order(x) if descending else np.argsort(x, axis=-1, kind="stable")
    return np.take_along_axis(x, order, axis=-1), order.astype(np.uint32)


def _falling_order(x: Array) -> Array:
    """Stable falling order: the stable rising order of the reversed row, read backwards."""
    order: Array = x.shape[-1] - 1 - np.argsort(x[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    return order


# Thresholds of one row.


def thresholds(function: Callable[[Array, Any], Any], x: Array, arguments: Array) -> Array:
    """``function(row, argument)`` of every row; arguments are one a pass or one a row. Returns ``[*lead]``."""
    lead = x.shape[:-1]
    spread = np.broadcast_to(arguments.reshape(*arguments.shape, *(1,) * (len(lead) - arguments.ndim)), lead)
    rows = zip(x.reshape(-1, x.shape[-1]), spread.reshape(-1), strict=True)
    return np.asarray([function(row, argument) for row, argument in rows], dtype=np.float32).reshape(lead)


def kth_largest(row: Array, k: Any) -> Any:
    place = len(row) - min(max(int(k), 1), len(row))
    return np.partition(row, place)[place]


def nucleus(row: Array, p: Any) -> Any:
    best = row.max()
    if not p < 1:
        return row.min()
    if not np.isfinite(best):
        return best
    weights = np.exp(row - best)
    wanted = float(p) * float(weights.sum(dtype=np.float64))
    for reach in (4, 6, 8, 10, 12, 16, np.inf):
        # The nucleus mostly lies near the maximum: sort only the part that looks heavy enough to hold it.
        near = row >= best - reach
        if np.dot(weights, near.astype(np.float32)) < wanted * 0.999:
            continue
        falling = np.sort(row[near])[::-1]
        place = int(np.searchsorted(np.cumsum(np.exp(falling - best), dtype=np.float64), wanted))
        if place < len(falling):
            return falling[place]
    return row.min()


def min_p(row: Array, p: Any) -> Any:
    return row.max() + np.log(np.float32(p))


# Indexing. Indices out of range read zero and write nothing.


def gather(x: Array, indices: Array) -> Array:
    """Entries of the pass's first axis: x [passes, n, *rest], indices [passes, *any]."""
    good = _inside(indices, x.shape[1])
    batch = np.arange(len(x)).reshape(-1, *(1,) * (indices.ndim - 1))
    found = x[batch, np.where(good, indices, 0).astype(np.intp)]
    return np.where(good.reshape(*good.shape, *(1,) * (found.ndim - good.ndim)), found, np.zeros((), x.dtype))


def take_along(x: Array, indices: Array) -> Array:
    """Entries of each row: x [*lead, n], indices [*lead, *any]."""
    places = indices.reshape(*x.shape[:-1], -1)
    good = _inside(places, x.shape[-1])
    found = np.take_along_axis(x, np.where(good, places, 0).astype(np.intp), axis=-1)
    return np.where(good, found, np.zeros((), x.dtype)).reshape(indices.shape)


_CHANGES: Mapping[str, Callable[[Array, Array, Array], None]] = {
    "set": lambda row, places, updates: row.__setitem__(places, updates),
    "add": np.add.at,
    "min": np.minimum.at,
    "max": np.maximum.at,
}


def scatter(x: Array, indices: Array, updates: Array, mode: str) -> Array:
    """Each row changed at its indices; updates are one a pass or one an index."""
    found = x.copy().reshape(-1, x.shape[-1])
    spread = np.broadcast_to(updates.reshape(*updates.shape, *(1,) * (indices.ndim - updates.ndim)), indices.shape)
    change, count = _CHANGES[mode], indices.shape[-1]
    for row, places, new in zip(found, indices.reshape(-1, count), spread.reshape(-1, count), strict=True):
        good = _inside(places, len(row))
        change(row, places[good].astype(np.intp), new[good])
    return found.reshape(x.shape)


def _inside(indices: Array, extent: int) -> Array:
    return (indices >= 0) & (indices < extent)


# Bit masks: bit i % 32 of word i // 32.


def unpack_bits(words: Array, size: int) -> Array:
    octets = np.ascontiguousarray(words, dtype="<u4").view(np.uint8)
    return np.unpackbits(octets, axis=-1, count=size, bitorder="little").view(np.bool_)


def pack_bits(x: Array) -> Array:
    padding = [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % 32)]
    octets = np.ascontiguousarray(np.packbits(np.pad(x, padding), axis=-1, bitorder="little"))
    return octets.view("<u4").astype(np.uint32, copy=False)


def mask_logits(x: Array, words: Array) -> Array:
    """``words`` are one mask a pass, or one a row."""
    allowed = unpack_bits(words, x.shape[-1])
    spread = allowed.reshape(len(x), *(1,) * (x.ndim - allowed.ndim), *allowed.shape[1:])
    return np.where(spread, x, np.float32(-np.inf))
