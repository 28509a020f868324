"""Turning pairs of each head's values by an angle that grows with the position."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from pie_edge.backends.metal.context import Arrays, Context
from pie_edge.program.ops import Op


def ops(c: Context, op: Op, x: mx.array, positions: mx.array, factors: mx.array | None = None) -> Arrays:
    rotary, heads = op.integer("rotary"), op.integer("heads")
    named = op.named
    cosine, sine = (table[:, None] for table in turns(c, op, named["positions"], named.get("factors")))
    by_head = x.reshape(x.shape[0], heads, x.shape[1] // heads)
    turned, rest = by_head[..., :rotary], by_head[..., rotary:]
    neox = op.attribute("style") == "neox"
    pairs = turned.reshape(x.shape[0], heads, *((2, rotary // 2) if neox else (rotary // 2, 2)))
    first, second = (pairs[:, :, 0], pairs[:, :, 1]) if neox else (pairs[..., 0], pairs[..., 1])
    parts = [first * cosine - second * sine, first * sine + second * cosine]
    turned = mx.stack(parts, axis=2 if neox else 3).reshape(turned.shape)
    return (mx.concatenate([turned, rest], axis=-1).reshape(x.shape),)


def turns(c: Context, op: Op, positions: str, factors: str | None) -> tuple[mx.array, mx.array]:
    """[T, rotary / 2] cosines and sines, each times the magnitude: of angles in float64, for positions are large."""
    rotary = op.integer("rotary")
    base, scale, magnitude = (op.number(name) for name in ("base", "scale", "magnitude"))
    key = ("turns", positions, factors, rotary, base, scale, magnitude)
    return c.once(key, lambda: _made(c.inputs[positions], c.vector(factors), rotary, base, scale, magnitude))


def _made(
    positions: NDArray[Any], factors: NDArray[Any] | None, rotary: int, base: float, scale: float, magnitude: float
) -> tuple[mx.array, mx.array]:
    frequencies = base ** (-2.0 * np.arange(rotary // 2) / rotary)
    if factors is not None:
        frequencies = frequencies / factors
    angles = positions[:, None] * scale * frequencies
    cosine, sine = ((magnitude * f(angles)).astype(np.float32) for f in (np.cos, np.sin))
    return mx.array(cosine), mx.array(sine)
