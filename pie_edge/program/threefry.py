"""Counter-based random numbers: Threefry-2x32-20 (Salmon et al., *Parallel random numbers: as easy as 1, 2, 3*, 2011).

A draw is a pure function of (seed, position, draw index, element), so it is the same alone or in a batch, on every
backend. The seed and the position make a *stream*; an element of a draw is one word of that stream:

    stream = threefry(key = seed words, counter = (position, draw index))
    word e = threefry(key = stream, counter = (e >> 1, 0))[e & 1]
    uniform = ((word >> 8) | 1) · 2⁻²⁴

The uniform is an odd multiple of 2⁻²⁴: exact in float32, and never 0 or 1, so ``−log(−log u)`` is always finite.
``node_reference.py`` holds the same arithmetic over arrays.
"""

from __future__ import annotations

ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
PARITY = 0x1BD11BDA
ROUNDS = 20
_MASK = 0xFFFFFFFF

Words = tuple[int, int]


def threefry2x32(key: Words, counter: Words) -> Words:
    """Twenty rounds over two 32-bit words; the key is injected before the first round and after every fourth."""
    keys = (key[0], key[1], PARITY ^ key[0] ^ key[1])
    x, y = (counter[0] + keys[0]) & _MASK, (counter[1] + keys[1]) & _MASK
    for step in range(ROUNDS):
        turn = ROTATIONS[step % 8]
        x = (x + y) & _MASK
        y = (((y << turn) | (y >> (32 - turn))) & _MASK) ^ x
        if step % 4 == 3:
            injection = step // 4 + 1
            x = (x + keys[injection % 3]) & _MASK
            y = (y + keys[(injection + 1) % 3] + injection) & _MASK
    return x, y


def stream(seed: Words, position: int, draw: int) -> Words:
    """The key of one draw: ``seed`` is its low and high word, ``draw`` the index of the random node in its epilogue."""
    return threefry2x32(seed, (position & _MASK, draw & _MASK))


def word(key: Words, element: int) -> int:
    return threefry2x32(key, (element >> 1, 0))[element & 1]


def uniform(bits: int) -> float:
    """A number in (0, 1) from the high 24 bits of a word."""
    return ((bits >> 8) | 1) * 2.0**-24
