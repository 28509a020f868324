"""Numbers as kernels are told of them, beside what they are bound to."""

from __future__ import annotations

import struct


def word(value: int | float | bool) -> bytes:
    """An int as a 32-bit word, a float as float32."""
    if isinstance(value, float):
        return struct.pack("<f", value)
    return struct.pack("<i" if value < 0 else "<I", int(value))


def words(*values: int | float | bool) -> bytes:
    return b"".join(map(word, values))
