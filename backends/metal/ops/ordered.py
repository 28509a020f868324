"""A stable order by MLX's ops, whose own sort promises none for equal keys."""

from __future__ import annotations

import mlx.core as mx


def order(keys: mx.array) -> mx.array:
    """Where the entries of each row of u32 keys stand in rising order, of equal ones the lower first."""
    places = mx.arange(keys.shape[-1], dtype=mx.uint64)
    sorted_keys = mx.sort((keys.astype(mx.uint64) << 32) | places, axis=-1)
    return (sorted_keys & 0xFFFFFFFF).astype(mx.uint32)


def falling(x: mx.array) -> mx.array:
    """u32 keys that rise as these floats fall; both zeros are one."""
    words = mx.view(x + 0.0, mx.uint32)
    return mx.where(words >> 31 == 1, words, ~(words | 0x80000000))
