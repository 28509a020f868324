"""Seeds of contexts: each draws numbers of its own, and the same ones whenever the program runs with the same seed."""

from __future__ import annotations

import itertools

from inferlet import runtime

_MASK = 2**64 - 1
_ROOTS = 0x5851F42D4C957F2D

_numbers = itertools.count()


def first_seed() -> int:
    """Of a new context. The first one of a program draws what passes without a seed of their own draw."""
    number = next(_numbers)
    return derived(runtime.seed() ^ _ROOTS, number) if number else runtime.seed()


def derived(seed: int, number: int) -> int:
    """The ``number``-th seed that follows from ``seed``."""
    return _mixed(_mixed(seed) + number)


def _mixed(seed: int) -> int:
    """A step of SplitMix64 (Steele et al., 2014)."""
    mixed = (seed + 0x9E3779B97F4A7C15) & _MASK
    mixed = ((mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) & _MASK
    return mixed ^ mixed >> 31
