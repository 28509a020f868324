"""Threefry over arrays: the words of ``threefry.py``, many at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pie_edge.program.threefry import PARITY, ROTATIONS, ROUNDS

Array = npt.NDArray[Any]
Pair = tuple[Array, Array]

GUMBEL_MAX = 16.64
"""Above every gumbel: a uniform is at most 1 − 2⁻²⁴."""


def threefry2x32(key: Pair, counter: Pair) -> Pair:
    """Twenty rounds on uint32 arrays (NumPy scalars would warn of wrapping), which broadcast against each other."""
    keys = (key[0], key[1], np.uint32(PARITY) ^ key[0] ^ key[1])
    x, y = counter[0] + keys[0], counter[1] + keys[1]
    for step in range(ROUNDS):
        turn = ROTATIONS[step % 8]
        x = x + y
        y = ((y << np.uint32(turn)) | (y >> np.uint32(32 - turn))) ^ x
        if step % 4 == 3:
            injection = step // 4 + 1
            x = x + keys[injection % 3]
            y = y + (keys[(injection + 1) % 3] + np.uint32(injection))
    return x, y


def streams(seeds: Array, positions: Array, draw: int) -> Pair:
    """The key of one draw for each seed ``[…, 2]`` and position ``[…]``."""
    return threefry2x32((seeds[..., 0], seeds[..., 1]), (positions, np.full_like(positions, draw)))


def words(keys: Pair, count: int) -> Array:
    """The first ``count`` words of each stream: ``[…, count]``."""
    blocks = np.arange((count + 1) // 2, dtype=np.uint32)
    first, second = threefry2x32((keys[0][..., None], keys[1][..., None]), (blocks, np.zeros_like(blocks)))
    return np.stack([first, second], axis=-1).reshape(*first.shape[:-1], -1)[..., :count]


def words_at(key: Pair, elements: Array) -> Array:
    """Single words of one stream, whose key has shape [1]."""
    blocks = (elements >> 1).astype(np.uint32)
    first, second = threefry2x32(key, (blocks, np.zeros_like(blocks)))
    return np.where(elements & 1, second, first)


def uniform(bits: Array) -> Array:
    """Numbers in (0, 1), float32."""
    return ((bits >> np.uint32(8)) | np.uint32(1)).astype(np.float32) * np.float32(2.0**-24)


def gumbel(numbers: Array) -> Array:
    return -np.log(-np.log(numbers))


def gumbel_at(key: Pair, elements: Array) -> Array:
    return gumbel(uniform(words_at(key, elements)))


def gumbel_argmax(row: Array, key: Pair, offset: int) -> int:
    """argmax(row + gumbel) with noise number ``offset + i`` for entry i, drawn only for entries that can win.

    The best of those near the maximum bounds the winner from below, and no entry rises by more than GUMBEL_MAX.
    """
    best = row.max()
    if not np.isfinite(best):
        return int(np.argmax(row))
    near = np.flatnonzero(row >= best - 4)
    bound = (row[near] + gumbel_at(key, near + offset)).max() - GUMBEL_MAX
    # The sums above and below round at the scale of the logits.
    able = np.flatnonzero(row >= bound - abs(best) * np.float32(2.0**-22))
    return int(able[np.argmax(row[able] + gumbel_at(key, able + offset))])
