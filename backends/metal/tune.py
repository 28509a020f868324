"""Whether MLX's product with codes is faster than ours, by rows of x: measured on the device, in turns, and kept by device, MLX's
version and kernels."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median

import mlx.core as mx
import numpy as np

from pie_edge.backend import Stop
from pie_edge.backends.metal import device
from pie_edge.backends.metal.device import Facts
from pie_edge.backends.metal.launch import FOLDER, on_metal
from pie_edge.backends.metal.ops import linear
from pie_edge.backends.metal.ops.products import quantised
from pie_edge.backends.metal.timeline import Timeline
from pie_edge.backends.metal.tuning import ROWS, Tuning
from pie_edge.backends.metal.weights import Form, Matrix
from pie_edge.backends.shared.remembered import Record, Subject
from pie_edge.errors import UsageError
from pie_edge.program.encodings import DType

_WIDTH = 2048
_LINKS = 8
"""Products one after the other, each reading what the one before gave."""
_ROUNDS = 15
MARGIN = 0.05
"""What isn't the default has to be faster by this share."""

Report = Callable[[str], None]
Seconds = Callable[[Matrix, int, bool], float]
"""Of a chain of products with a matrix and so many rows, by MLX or by our kernels."""


@cache
def kernels_digest() -> str:
    """Of the kernels, and of how ops are made of MLX's."""
    files = sorted((*FOLDER.iterdir(), *FOLDER.with_name("ops").glob("*.py")))
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files if file.is_file())).hexdigest()


def subject(facts: Facts) -> Subject:
    return Subject("metal", facts.name, facts.driver, kernels_digest())


def record(facts: Facts, folder: Path | None) -> Record:
    return Record(subject(facts), folder, "tuning")


def remembered(facts: Facts, folder: Path | None) -> Tuning | None:
    found = (record(facts, folder).read() or {}).get("by_mlx")
    fits = isinstance(found, list) and len(found) == len(ROWS) and all(isinstance(one, bool) for one in found)
    return Tuning(tuple(found)) if fits and isinstance(found, list) else None


def measured(look: Callable[[], None], report: Report, seconds: Seconds | None = None) -> Tuning:
    """On the thread that it is called on. ``look`` is called between two rounds."""
    time_of, matrix, default = seconds or _seconds, _made(), Tuning()
    found = []
    for place, rows in enumerate(ROWS):
        usual = default.by_mlx[place]
        rounds = []
        for _ in range(_ROUNDS):
            look()
            rounds.append((time_of(matrix, rows, usual), time_of(matrix, rows, not usual)))
        kept, other = (1e6 * median(times) / _LINKS for times in zip(*rounds, strict=True))
        ratio = median(b / a for a, b in rounds)
        taken = usual if ratio > 1 - MARGIN else not usual
        found.append(taken)
        names = ("ours", "MLX's")
        report(
            f"linear, {rows} rows: {names[usual]} {kept:.0f} µs, {names[not usual]} {other:.0f} µs; {names[taken]} is taken"
        )
    return replace(default, by_mlx=tuple(found))


def tune_device(name: str, cache_dir: Path, report: Report, stop: Stop) -> None:
    """``pie-edge tune``. Raises BackendUnavailable, UsageError where there is nothing to choose, and Stopped."""
    facts = device.chosen(name)
    if not facts.gpu:
        raise UsageError(
            f"{facts.name} has no variants to choose from: kernels by hand need a GPU; nothing is to be tuned"
        )
    timeline = Timeline(lambda: device.enter(facts, facts.memory))
    try:
        found = timeline.call(lambda: measured(stop.look, report))
    finally:
        timeline.close()
    record(facts, cache_dir).keep({"by_mlx": list(found.by_mlx)})


def _made() -> Matrix:
    """Four bits in groups of 64 with halves: what MLX snapshots mostly have."""
    form = Form(_WIDTH, None, 4, 64, DType.F16, biased=True)
    words = np.arange(_WIDTH * _WIDTH // 8, dtype=np.uint32).reshape(_WIDTH, -1) * np.uint32(2654435761)
    scales = mx.full((_WIDTH, _WIDTH // 64), 1 / 256, mx.float16)
    return Matrix(form, mx.array(words), scales, -8 * scales)


def _seconds(matrix: Matrix, rows: int, by_mlx: bool) -> float:
    x = mx.ones((rows, _WIDTH))
    mx.eval(x, *matrix.arrays())
    began = time.perf_counter()
    for _ in range(_LINKS):
        x = quantised(x, matrix) if by_mlx else linear.by_hand(on_metal, x, matrix, None)[0]
    mx.eval(x)
    return time.perf_counter() - began
