"""The variants of the hot kernels, by the device; ``tune`` measures which are the fastest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from pie_edge.backends.cuda.device import Facts
from pie_edge.backends.cuda.nvrtc import HOPPER

WARPS = 8
"""Of a block of ``linear``, and of one of those that multiply many rows."""
FEW = 8
"""Rows of x that a block of ``linear`` takes at most."""
TILE = 64
"""Rows of x that a block on tensor cores takes."""
ROWS = 8
"""Of a row group: part of the weights' layout and of the kernels (``weights.cuh``)."""
_AMPERE = 80
"""From here on copies to shared memory go on their own: before, a second stage has nothing to win. Tensor cores take bfloat16."""


@dataclass(frozen=True, slots=True)
class TileVariant:
    """How many rows are multiplied: ``stages`` of columns in shared memory or on their way there, fewer where they don't fit;
    by ``mma``, or by Hopper's ``wgmma`` and TMA."""

    stages: int
    wgmma: bool = False


@dataclass(frozen=True, slots=True)
class Tuning:
    """What launches are made with, beside what the model asks."""

    processors: int
    tile: TileVariant
    blocks: int = 4
    """Blocks of ``linear`` that each processor should have, if columns can be shared out so."""
    interleaved: int = ROWS
    tokens_at_once: tuple[int, ...] = (1, 2, 4, FEW, TILE)
    """Rows of x that a block of ``linear`` takes, and last those that go to tensor cores, as all larger steps do."""
    split: int = 256
    """Keys of a split of a decode."""
    odd_bits: bool = True
    tiled_bf16: bool = False
    """Whether tensor cores take bfloat16: a fact of the device, which nobody tries."""

    def tokens(self, rows: int) -> int:
        """Rows that a block of ``linear`` takes in a step of this many."""
        return next((tokens for tokens in self.tokens_at_once if tokens >= rows), self.tokens_at_once[-1])

    def splits(self, row_groups: int, items: int) -> int:
        """Warps that share a row group: so many that every processor has its blocks, while each has an item for its lanes."""
        splits = 1
        while splits < WARPS and row_groups * splits < self.blocks * WARPS * self.processors and items >= 8 * splits:
            splits *= 2
        return splits

    def repeats(self, blocks: int) -> int:
        """Row groups a warp takes one after the other: more where there are blocks enough, for the rows of x are brought once."""
        return max(1, min(8, blocks // (4 * self.blocks * self.processors)))

    @classmethod
    def restored(cls, found: Mapping[str, Any]) -> Self:
        """From what was kept of one. Raises KeyError, TypeError or ValueError."""
        return cls(**{**found, "tile": TileVariant(**found["tile"]), "tokens_at_once": tuple(found["tokens_at_once"])})


def default_tuning(facts: Facts) -> Tuning:
    modern = facts.architecture >= _AMPERE
    tile = TileVariant(4 if modern else 2, facts.architecture == HOPPER)
    return Tuning(facts.processors, tile, tiled_bf16=modern)
