"""Whether MLX's own ops are faster than our kernels, by how large what they do is: measured on the device, in turns, and kept by
device, MLX's version, macOS's and kernels."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import median

import mlx.core as mx

from pie_edge.backend import Stop
from pie_edge.backends.metal import device
from pie_edge.backends.metal.contests import LINKS, Contest, contests
from pie_edge.backends.metal.device import Facts
from pie_edge.backends.metal.launch import FOLDER, on_metal
from pie_edge.backends.metal.timeline import Timeline
from pie_edge.backends.metal.tuning import Tuning
from pie_edge.backends.shared.remembered import Record, Subject
from pie_edge.errors import UsageError

_ROUNDS = 15
MARGIN = 0.05
"""What isn't the default has to be faster by this share."""

Report = Callable[[str], None]
Seconds = Callable[[Contest, int, bool], float]
"""Of a contest's chain of a size, by MLX or by our kernels."""


@cache
def kernels_digest() -> str:
    """Of the kernels, and of how ops and epilogues are made of MLX's."""
    parts = FOLDER.iterdir(), FOLDER.with_name("ops").glob("*.py"), FOLDER.with_name("epilogues").glob("*.py")
    files = sorted(file for part in parts for file in part if file.is_file())
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


def subject(facts: Facts) -> Subject:
    return Subject("metal", facts.name, facts.driver, kernels_digest())


def record(facts: Facts, folder: Path | None) -> Record:
    return Record(subject(facts), folder, "tuning")


def remembered(facts: Facts, folder: Path | None) -> Tuning | None:
    return Tuning.read(record(facts, folder).read() or {})


def measured(look: Callable[[], None], report: Report, seconds: Seconds | None = None) -> Tuning:
    """On the thread that it is called on. ``look`` is called between two rounds."""
    found = {contest.field: _measured(contest, look, report, seconds or _seconds) for contest in contests()}
    return Tuning(**found)


def _measured(contest: Contest, look: Callable[[], None], report: Report, time_of: Seconds) -> tuple[bool, ...]:
    found = []
    for size, usual in zip(contest.sizes, getattr(Tuning(), contest.field), strict=True):
        rounds = []
        for _ in range(_ROUNDS):
            look()
            rounds.append((time_of(contest, size, usual), time_of(contest, size, not usual)))
        kept, other = (1e6 * median(times) / LINKS for times in zip(*rounds, strict=True))
        ratio = median(b / a for a, b in rounds)
        taken = usual if ratio > 1 - MARGIN else not usual
        found.append(taken)
        names = ("ours", "MLX's")
        report(
            f"{contest.what}, {size} {contest.unit}: {names[usual]} {kept:.0f} µs, {names[not usual]} {other:.0f} µs; "
            f"{names[taken]} is taken"
        )
    return tuple(found)


def tune_device(name: str, cache_dir: Path, report: Report, stop: Stop) -> None:
    """``pie-edge tune``. Raises BackendUnavailable, UsageError where there is nothing to choose, BackendError if what is
    found can't be kept, and Stopped."""
    facts = device.chosen(name)
    if not facts.gpu:
        raise UsageError(
            f"{facts.name} has no variants to choose from: kernels by hand need a GPU; nothing is to be tuned"
        )
    kept = record(facts, cache_dir)
    kept.check()
    timeline = Timeline(lambda: device.enter(facts, facts.memory))
    try:
        found = timeline.call(lambda: measured(stop.look, report))
    finally:
        timeline.close()
    kept.keep(found.document())


def _seconds(contest: Contest, size: int, by_mlx: bool) -> float:
    given = contest.given(size)
    mx.eval(*given)
    began = time.perf_counter()
    mx.eval(contest.chain(given, by_mlx, on_metal))
    return time.perf_counter() - began
