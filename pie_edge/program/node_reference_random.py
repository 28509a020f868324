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


def words_at(keys: Pair, elements: Array) -> Array:
    """One word each: number ``elements[i]`` of stream ``keys[·][i]``, or all of one stream of shape [1]."""
    blocks = (elements >> 1).astype(np.uint32)
    first, second = threefry2x32(keys, (blocks, np.zeros_like(blocks)))
    return np.where(elements & 1, second, first)


def uniform(bits: Array) -> Array:
    """Numbers in (0, 1), float32."""
    return ((bits >> np.uint32(8)) | np.uint32(1)).astype(np.float32) * np.float32(2.0**-24)


def gumbel(numbers: Array) -> Array:
    return -np.log(-np.log(numbers))


def gumbel_at(keys: Pair, elements: Array) -> Array:
    return gumbel(uniform(words_at(keys, elements)))


def gumbel_argmax(rows: Array, keys: Pair, offsets: Array) -> Array:
    """argmax(row + gumbel) of each row [N, V], drawing only for entries that can win.

    Entry i of row r has noise number ``offsets[r] + i`` of stream ``keys[·][r]``. The best of those near the maximum bounds
    the winner from below, and no entry rises by more than GUMBEL_MAX.
    """
    found: Array = rows.argmax(axis=-1)
    best = rows[np.arange(len(rows)), found]
    # An infinite maximum wins whatever is drawn; a row of NaN has no winner.
    usable = np.flatnonzero(np.isfinite(best))
    if len(usable) < len(rows):
        found[usable] = (
            gumbel_argmax(rows[usable], (keys[0][usable], keys[1][usable]), offsets[usable]) if len(usable) else 0
        )
        return found
    scores, _, starts = _noisy(rows, best - 4, keys, offsets)
    # The sums round at the scale of the logits.
    slack = np.abs(best) * np.float32(2.0**-22)
    bound = np.maximum.reduceat(scores, starts) - GUMBEL_MAX - slack
    scores, columns, starts = _noisy(rows, bound, keys, offsets)
    for row, (start, stop) in enumerate(zip(starts, [*starts[1:], len(scores)], strict=True)):
        found[row] = columns[start + scores[start:stop].argmax()]
    return found


def _noisy(rows: Array, least: Array, keys: Pair, offsets: Array) -> tuple[Array, Array, Array]:
    """Entries of at least ``least[r]`` plus their noise, row after row; their columns, and where each row starts."""
    flat = np.flatnonzero(rows >= least[:, None])
    owner, column = np.divmod(flat, rows.shape[-1])
    noise = gumbel_at((keys[0][owner], keys[1][owner]), column + offsets[owner])
    return rows.reshape(-1)[flat] + noise, column, np.searchsorted(owner, np.arange(len(rows)))
