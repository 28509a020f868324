"""Whether MLX's products with codes and with dense matrices are faster than ours, by rows of x: measured on the device, in turns,
and kept by device, MLX's version and kernels."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import median

import mlx.core as mx
import numpy as np

from pie_edge.backend import Stop
from pie_edge.backends.metal import device
from pie_edge.backends.metal.device import Facts
from pie_edge.backends.metal.launch import FOLDER, on_metal
from pie_edge.backends.metal.ops import linear, products
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
    return Tuning.read(record(facts, folder).read() or {})


def measured(look: Callable[[], None], report: Report, seconds: Seconds | None = None) -> Tuning:
    """On the thread that it is called on. ``look`` is called between two rounds."""
    time_of, default = seconds or _seconds, Tuning()
    return Tuning(
        _measured("codes", _codes(), default.by_mlx, look, report, time_of),
        _measured("dense", _dense(), default.dense_by_mlx, look, report, time_of),
    )


def _measured(
    what: str, matrix: Matrix, default: tuple[bool, ...], look: Callable[[], None], report: Report, time_of: Seconds
) -> tuple[bool, ...]:
    found = []
    for rows, usual in zip(ROWS, default, strict=True):
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
            f"linear, {what}, {rows} rows: {names[usual]} {kept:.0f} µs, {names[not usual]} {other:.0f} µs; "
            f"{names[taken]} is taken"
        )
    return tuple(found)


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
    record(facts, cache_dir).keep(found.document())


def _dense() -> Matrix:
    """What snapshots that aren't quantised have."""
    return Matrix(Form(_WIDTH, DType.BF16), mx.full((_WIDTH, _WIDTH), 1 / _WIDTH, mx.bfloat16))


def _codes() -> Matrix:
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
        x = products.by_mlx(x, matrix) if by_mlx else linear.by_hand(on_metal, x, matrix, None)[0]
    mx.eval(x)
    return time.perf_counter() - began
