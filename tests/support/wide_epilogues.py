"""Epilogues over rows as wide as a vocabulary, and rows that are awkward: ties, infinities, nothing left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pie_edge.program.node_reference_rows import kth_largest
from pie_edge.program.ops import Program
from pie_edge.sampling import Epilogue
from tests.support.epilogues import Wire

Array = Any


def noise(random: np.random.Generator, shape: tuple[int, int]) -> Array:
    return random.normal(0, 3, shape)


def ties(random: np.random.Generator, shape: tuple[int, int]) -> Array:
    return np.rint(random.normal(0, 2, shape))


def masked(random: np.random.Generator, shape: tuple[int, int]) -> Array:
    return np.where(random.random(shape) < 0.999, -np.inf, random.normal(0, 3, shape))


def infinite(random: np.random.Generator, shape: tuple[int, int]) -> Array:
    return np.where(random.random(shape) < 0.0001, np.inf, random.normal(0, 3, shape))


def hopeless(random: np.random.Generator, shape: tuple[int, int]) -> Array:
    return np.full(shape, -np.inf)


def zeros(random: np.random.Generator, shape: tuple[int, int]) -> Array:
    return np.where(random.random(shape) < 0.5, -0.0, 0.0)


ROWS: dict[str, Callable[[np.random.Generator, tuple[int, int]], Array]] = {
    function.__name__: function for function in (noise, ties, masked, infinite, hopeless, zeros)
}


def _of_logits(op: str, results: int = 1, **attributes: Any) -> str:
    wire = Wire()
    node = wire.add(op, wire.add("logits"), **attributes)
    return wire.text(*([node, result] for result in range(results)))


def _threshold(op: str, value: float) -> str:
    wire = Wire()
    return wire.text(wire.add(op, wire.add("logits"), wire.add("constant", value=value)))


def _sort_of_integers() -> str:
    wire = Wire()
    node = wire.add("sort", wire.add("cast", wire.add("logits"), dtype="i32"), descending=True)
    return wire.text([node, 0], [node, 1])


def _penalty() -> str:
    """Tokens that were seen count less: a scatter at 700 places, some of them twice, some outside."""
    wire = Wire()
    logits, places = wire.add("logits"), wire.add("mul", wire.add("cast", wire.add("iota", size=700), dtype="i32"),
                                                  wire.add("constant", value=97))  # fmt: skip
    changed = wire.add("scatter", logits, places, wire.add("constant", value=-1.5), mode="add")
    return wire.text(changed, wire.add("reduce_argmax", changed))


def _bits() -> str:
    wire = Wire()
    kept = wire.add("gt", wire.add("logits"), wire.add("constant", value=0.5))
    words = wire.add("pack_bits", kept)
    return wire.text(kept, words, wire.add("reduce_argmax", wire.add("mask_logits", wire.add("logits"), words)))


def _uncertainty() -> str:
    wire = Wire()
    x = wire.add("logits")
    return wire.text(wire.add("logsumexp", x), wire.add("entropy", x), wire.add("reduce_argmax", x),
                     wire.add("reduce_min", x), wire.add("reduce_argmin", x))  # fmt: skip


TEXTS: dict[str, str] = {
    "argmax": _of_logits("reduce_argmax"),
    "uncertainty": _uncertainty(),
    "softmax": _of_logits("softmax"),
    "gumbel-max": _of_logits("gumbel_max"),
    "top-1": _of_logits("top_k", 2, k=1),
    "top-256": _of_logits("top_k", 2, k=256),
    "top-1024": _of_logits("top_k", 2, k=1024),
    "top-5000": _of_logits("top_k", 2, k=5000),
    "sort": _of_logits("sort", 2, descending=False),
    "sort-integers": _sort_of_integers(),
    "kth-largest": _threshold("kth_largest", 40),
    "cumsum": _of_logits("cumsum"),
    "penalty": _penalty(),
    "bits": _bits(),
}


def arrays_of(
    epilogue: Epilogue, kind: str, passes: int, parameters: dict[str, Array] | None = None, seed: int = 3
) -> tuple[Program, dict[str, Array]]:
    """A Program for ``passes`` passes of rows of one kind, and its state and inputs."""
    random = np.random.default_rng(seed)
    count = passes * epilogue.rows
    program = epilogue.program(count, count)
    logits = ROWS[kind](random, (count, program.values["logits"].shape[1])).astype(np.float32)
    arrays = {
        "logits": logits,
        "counts": np.asarray([passes], np.uint32),
        "rows": np.arange(count, dtype=np.uint32)[::-1],
        "positions": random.integers(0, 2**32, count, dtype=np.uint32),
        "draw_keys": random.integers(0, 2**32, (count, 2), dtype=np.uint32),
    }
    return program, arrays | (parameters or {})


def nucleus_is_right(row: Array, p: float, threshold: float, tolerance: float = 2e-6) -> bool:
    """Whether the entries from the threshold on have probability p, and those above it less, up to the rounding of sums."""
    weights = np.exp(row.astype(np.float64) - row.max())
    wanted, total = p * weights.sum(), weights.sum()
    with_it, without = weights[row >= threshold].sum(), weights[row > threshold].sum()
    return bool(threshold in row and with_it >= wanted - tolerance * total and without < wanted + tolerance * total)


def narrowed(row: Array, top_k: int, top_p: float, min_p: float) -> tuple[Array, bool]:
    """A row narrowed as the presets do; and whether no rounding of sums could narrow it otherwise."""
    certain = True
    if top_k:
        row = np.where(row >= kth_largest(row, top_k), row, -np.inf)
    if top_p < 1:
        falling = np.sort(row.astype(np.float64))[::-1]
        sums = np.cumsum(np.exp(falling - falling[0]))
        place = int(np.searchsorted(sums, top_p * sums[-1]))
        certain &= bool(np.abs(sums - top_p * sums[-1]).min() > 2e-6 * sums[-1])
        row = np.where(row >= falling[place], row, -np.inf)
    if min_p:
        least = row.max() + np.log(min_p)
        certain &= bool(np.abs(row[np.isfinite(row)] - least).min() > 1e-5)
        row = np.where(row >= least, row, -np.inf)
    return row, certain
