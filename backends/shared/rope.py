"""Rope's frequencies as ``shaders/glsl/turns.glsl`` takes them: turns a position, as 64-bit fractions."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from fractions import Fraction

_ONE = 1 << 64


def frequencies(base: float, scale: float, rotary: int, factors: Sequence[float] | None) -> bytes:
    """For each pair the high and the low word of its frequency, scale · base^(−2i/rotary) / factor radians a position."""
    table = []
    for pair in range(rotary // 2):
        radians = base ** (-2.0 * pair / rotary) / (1.0 if factors is None else factors[pair])
        turns = round(Fraction(scale) * Fraction(radians) / Fraction(2 * math.pi) * _ONE) % _ONE
        table += [turns >> 32, turns & 0xFFFFFFFF]
    return struct.pack(f"<{len(table)}I", *table)
