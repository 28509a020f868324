"""The draws of ``threefry.py`` as scalar expressions: the same words, bit for bit."""

from __future__ import annotations

from pie_edge.program.threefry import PARITY, ROTATIONS, ROUNDS
from pie_edge.sampling.dialects import functions
from pie_edge.sampling.dialects.scalar import F32, U32, Builder, Scalar

Words = tuple[Scalar, Scalar]


def threefry2x32(key: Words, counter: Words) -> Words:
    keys = (key[0], key[1], key[0] ^ key[1] ^ PARITY)
    x, y = counter[0] + keys[0], counter[1] + keys[1]
    for step in range(ROUNDS):
        turn = ROTATIONS[step % 8]
        x = x + y
        y = ((y << turn) | (y >> (32 - turn))) ^ x
        if step % 4 == 3:
            injection = step // 4 + 1
            x = x + keys[injection % 3]
            y = y + (keys[(injection + 1) % 3] + injection)
    return x, y


def stream(builder: Builder, seed: Words, position: Scalar, draw: int) -> Words:
    return threefry2x32(seed, (position, builder.constant(U32, draw)))


def word(key: Words, element: Scalar) -> Scalar:
    first, second = threefry2x32(key, (element >> 1, element.builder.constant(U32, 0)))
    return (element & 1).differs(0).where(second, first)


def uniform(bits: Scalar) -> Scalar:
    return ((bits >> 8) | 1).convert(F32) * 2.0**-24


def gumbel(number: Scalar) -> Scalar:
    """−log(−log u): both logarithms are of normal numbers."""
    return -functions.log_normal(-functions.log_normal(number))
