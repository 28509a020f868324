"""The variants of the hot kernels, by the device."""

from __future__ import annotations

from dataclasses import dataclass

from pie_edge.backends.cuda.device import Facts

WARPS = 8
"""Of a block of ``linear``."""
TILE = 64
"""Rows of x that a block of ``linear_tile`` takes."""
ROWS = 8
"""Of a row group: part of the weights' layout and of the kernels (``weights.cuh``)."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """What launches are made with, beside what the model asks."""

    processors: int
    interleaved: int = ROWS
    tokens_at_once: tuple[int, ...] = (1, 2, 4, 8, TILE)
    """Rows of x that a block of ``linear`` takes, and last of ``linear_tile``, which serves every larger step."""
    split: int = 256
    """Keys of a split of a decode."""
    odd_bits: bool = True

    def tokens(self, rows: int) -> int:
        """Rows that a block of ``linear`` takes in a step of this many."""
        return next((tokens for tokens in self.tokens_at_once if tokens >= rows), self.tokens_at_once[-1])

    def splits(self, row_groups: int, items: int) -> int:
        """Warps that share a row group: so many that every processor has four blocks, while each has an item for its lanes."""
        splits = 1
        while splits < WARPS and row_groups * splits < 4 * WARPS * self.processors and items >= 8 * splits:
            splits *= 2
        return splits

    def repeats(self, blocks: int) -> int:
        """Row groups a warp takes one after the other: more where there are blocks enough, for the rows of x are brought once."""
        return max(1, min(8, blocks // (16 * self.processors)))


def default_tuning(facts: Facts) -> Tuning:
    return Tuning(facts.processors)
