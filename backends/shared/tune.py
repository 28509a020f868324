"""Which variants of the hot kernels are fastest here: measured on the device, kept by device, driver and kernels.

Each choice is made by itself, starting from the defaults: a few variants run a chain of one kernel at a representative size, in
turns, so that whatever else the machine does meets all of them. The fastest meets the default again, alone, and is taken if it
wins clearly that time, too: what is only noise doesn't. A driver that refuses a variant loses only that, and a variant that
computes something else than the default is never taken.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from pie_edge.backends.shared.remembered import Record, Subject
from pie_edge.backends.shared.trial import Bench, Chain, Trial
from pie_edge.errors import DeviceLost, PieError

DEFAULT = "default"
MARGIN = 0.05
"""A variant has to be faster by this share to replace the default."""
SHORT_SECONDS = 1.5
"""What the measuring of a first load may take. Compiling what is measured isn't counted: that takes as long as it takes."""
ROUNDS = 15
"""In which every variant runs once: enough for a median that a few interruptions don't move."""
FEWEST = 5
"""Rounds without which nothing is said."""
T = TypeVar("T", bound=Any)
"""A backend's own tuning: a frozen dataclass."""
Given = Callable[[Any], Chain]
"""What a variant runs: the same for all, or what it would make of the same weights."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What was measured for one kernel: median seconds by variant, those of the fastest and the default when they met again, and
    the one that was taken. Variants are named by what they change; the default, whose name is ``default``, comes first."""

    kernel: str
    seconds: Mapping[str, float]
    again: Mapping[str, float]
    taken: str
    finished: bool
    """Enough rounds were run to tell."""
    wrong: Sequence[str] = ()
    """Variants whose results differ from the default's by more than rounding."""

    def __str__(self) -> str:
        decision = "the default stays" if self.taken == DEFAULT else f"{self.taken} is taken"
        if not self.finished:
            decision = f"too little time to tell, {decision}"
        again = f"; again, {_times(self.again)}" if self.again else ""
        wrong = "".join(f"; {name} computes otherwise and is not used" for name in self.wrong)
        return f"{self.kernel}: {_times(self.seconds)}{again}{wrong}; {decision}"


def _times(seconds: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {1e6 * value:.0f} µs" for name, value in seconds.items())


def tune_and_keep(bench: Bench, cache_dir: Path, report: Callable[[str], None]) -> None:
    """``pie-edge tune``: try all variants on a device, remember the best, and close it. Raises BackendError if the best can't be
    kept: before a minute of measuring, where that is known."""
    kept = record(bench.subject, cache_dir)
    try:
        kept.check()
        found = tune(bench, report=lambda choice: report(str(choice)))
    finally:
        with suppress(DeviceLost):
            bench.session.timeline.drain()
        bench.session.close()
    kept.keep(asdict(found))


def remembered(bench: Bench, cache_dir: Path | None) -> Any:
    """What an earlier tuning found for this device with this driver and these kernels, or None."""
    found = record(bench.subject, cache_dir).read()
    try:
        return None if found is None else type(bench.default).restored(found)
    except (KeyError, TypeError, ValueError):
        return None


def remember(subject: Subject, cache_dir: Path | None, tuning: Any) -> None:
    record(subject, cache_dir).write(asdict(tuning))


def record(subject: Subject, cache_dir: Path | None) -> Record:
    """Where it is kept."""
    return Record(subject, cache_dir, "tuning")


def tune(bench: Bench, seconds: float = 60.0, report: Callable[[Choice], None] = lambda choice: None) -> Any:
    """The best of the variants that could be measured in so many seconds; each kernel is reported when it is decided."""
    return bench.search(Tuner(bench, seconds, report))


class Tuner:
    """What a backend's search asks, kernel by kernel."""

    def __init__(self, bench: Bench, seconds: float, report: Callable[[Choice], None]) -> None:
        self.bench = bench
        self._left = seconds
        """Of measuring."""
        self._report = report

    def best(self, kernel: str, given: Given, default: T, others: Iterable[T]) -> T:
        """The fastest of the default and the others that compute the same, each on the chain that ``given`` makes for it."""
        if self._left <= 0:
            self._report(Choice(kernel, {}, {}, DEFAULT, finished=False))
            return default
        trials = {default: self._trial(given(default), default)}
        wrong = list[str]()
        try:
            for variant in others:
                self.bench.session.stop.look()
                with suppress(PieError):
                    trial = self._trial(given(variant), variant)
                    if trial.agrees(trials[default]):
                        trials[variant] = trial
                    else:
                        wrong.append(_name(variant, default))
                        trial.close()
            taken = self._winner(kernel, default, trials, wrong)
        finally:
            for trial in trials.values():
                trial.close()
        return taken

    def _winner(self, kernel: str, default: T, trials: dict[T, Trial], wrong: Sequence[str]) -> T:
        rounds, again = self._rounds(trials), dict[T, list[float]]()
        best = min(rounds, key=lambda tuning: _ratio(rounds[tuning], rounds[default]))
        if _clearly_faster(rounds, best, default):
            again = self._rounds({tuning: trials[tuning] for tuning in (default, best)})
        taken = best if again and _clearly_faster(again, best, default) else default
        finished = all(len(one[default]) >= FEWEST for one in (rounds, again) if one)
        self._report(Choice(kernel, _medians(rounds), _medians(again), _name(taken, default), finished, wrong))
        return taken

    def _rounds(self, trials: Mapping[T, Trial]) -> dict[T, list[float]]:
        """Seconds of each round's runs, each beginning with another variant; fewer rounds if the time is over."""
        order = list(trials)
        rounds: dict[T, list[float]] = {tuning: [] for tuning in order}
        deadline = time.perf_counter() + self._left
        for _ in range(ROUNDS):
            self.bench.session.stop.look()
            if time.perf_counter() > deadline:
                break
            for tuning in order:
                rounds[tuning].append(trials[tuning].seconds())
            order.append(order.pop(0))
        self._left = deadline - time.perf_counter()
        return rounds

    def _trial(self, chain: Chain, tuning: Any) -> Trial:
        return Trial(self.bench, chain, tuning)


def _medians(rounds: Mapping[T, Sequence[float]]) -> dict[str, float]:
    """By the variants' names; the first is the default."""
    default = next(iter(rounds), None)
    return {_name(tuning, default): median(times) for tuning, times in rounds.items() if times and default}


def _name(tuning: Any, default: Any) -> str:
    """What it changes of the default: ``groups 8, splits 1``."""
    usual = dict(_values("", asdict(default)))
    changed = [(path, value) for path, value in _values("", asdict(tuning)) if usual.get(path) != value]
    return ", ".join(f"{path.rpartition('.')[2]} {value}" for path, value in changed) or DEFAULT


def _values(path: str, of: Any) -> Iterator[tuple[str, Any]]:
    """All numbers of a document by their paths."""
    if not isinstance(of, dict | list | tuple):
        yield path, of
        return
    for name, value in of.items() if isinstance(of, dict) else enumerate(of):
        yield from _values(f"{path}.{name}", value)


def _ratio(times: Sequence[float], others: Sequence[float]) -> float:
    """The median, over rounds, of what the one takes of the other's time: whatever slows a whole round counts for nothing."""
    return median([one / other for one, other in zip(times, others, strict=True)]) if times else 1.0


def _clearly_faster(rounds: Mapping[T, Sequence[float]], one: T, other: T) -> bool:
    return len(rounds[one]) >= FEWEST and _ratio(rounds[one], rounds[other]) < 1 - MARGIN
