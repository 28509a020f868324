"""The Metal backend's hot kernels on paper."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.paper.work import (
    BRAINS,
    FLOAT,
    FOURS,
    HALF,
    HEADS,
    VOCABULARY,
    Device,
    Work,
    add_norm,
    decode,
    product,
    prompt,
    rope_append,
    sample,
)


def chip(name: str, bandwidth: float, cores: int, clock: float) -> Device:
    """A core does 128 multiply-adds in each turn of its clock, of floats or of halves, by matrix instructions too. Apple tells
    bandwidths and cores; clocks, in Hz, are what others measured."""
    return Device(name, bandwidth, {"float32": cores * clock * 128 * 2})


CHIPS = (
    chip("M1", 68e9, 8, 1.28e9),
    chip("M2, M3", 100e9, 10, 1.4e9),
    chip("M4", 120e9, 10, 1.47e9),
)
_TOKENS = 64
"""Rows of x for which ``linear_tile`` reads a weight once: the system's cache doesn't hold a matrix of this size."""


def argmax() -> Work:
    return Work("argmax", f"{VOCABULARY:,} logits", VOCABULARY * FLOAT, 2 * VOCABULARY, "float32")


def works() -> Iterator[Work]:
    yield product("linear", "4 bits", FOURS, 1, "float32")
    yield product("linear", "bf16", BRAINS, 1, "float32")
    yield product("linear", "4 bits", FOURS, 8, "float32")
    yield product("linear_tile", "4 bits", FOURS, 512, "float32", times=512 // _TOKENS)
    yield decode("attention", HEADS, 4096, HEADS.asked(1))
    # Every key is scored, and the values of half of them, which a row sees on average, are weighed.
    yield prompt("attention", HEADS, 1024, "float32", products=1 + 0.5)
    yield add_norm(1)
    yield add_norm(512)
    # Sines and cosines are read; keys and values are written, and put into the cache by MLX, which reads and writes them again.
    turned = HEADS.width * FLOAT + 2 * 2 * HEADS.keys * HEADS.width * HALF
    yield rope_append(HEADS, 1, turned)
    yield rope_append(HEADS, 512, turned)
    yield argmax()
    yield sample("nodes_sample")
