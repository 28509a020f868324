"""Which variants of the hot kernels are fastest here: measured on the device, kept by device, driver and kernels.

Each choice is made by itself, starting from the defaults: a few variants run a chain of one kernel at a representative size, in
turns, so that whatever else the machine does meets all of them. The fastest meets the default again, alone, and is taken if it
wins clearly that time, too: what is only noise doesn't. A driver that refuses a variant loses only that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from pie_edge.backends.shared.remembered import Record, Subject
from pie_edge.backends.shared.trial import Bench, Chain, Trial, attentions, products
from pie_edge.backends.shared.tuning import AttentionVariant, LinearVariant, Tuning
from pie_edge.errors import BackendError, PieError
from pie_edge.program.encodings import Affine, DType, Encoding

DEFAULT = "default"
MARGIN = 0.05
"""A variant has to be faster by this share to replace the default."""
SHORT_SECONDS = 1.5
"""What the tuning of a first load may take."""
ROUNDS = 15
"""In which every variant runs once: enough for a median that a few interruptions don't move."""
FEWEST = 5
"""Rounds without which nothing is said."""
_FOURS = Affine(4, 32, DType.F16, None)
_SIXES, _BYTES = Affine(6, 16, DType.F32, 32), Affine(8, 16, DType.F32, 32)
"""Codes of six bits, as they are and as the bytes that they become."""


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

    def __str__(self) -> str:
        decision = "the default stays" if self.taken == DEFAULT else f"{self.taken} is taken"
        if not self.finished:
            decision = f"too little time to tell, {decision}"
        again = f"; again, {_times(self.again)}" if self.again else ""
        return f"{self.kernel}: {_times(self.seconds)}{again}; {decision}"


def _times(seconds: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {1e6 * value:.0f} µs" for name, value in seconds.items())


def tune_and_keep(bench: Bench, cache_dir: Path, report: Callable[[str], None]) -> None:
    """``pie-edge tune``: try all variants on a device, and remember the best. Raises BackendError if the best can't be kept."""
    found = tune(bench, report=lambda choice: report(str(choice)))
    try:
        record(bench.subject, cache_dir).keep(asdict(found))
    except OSError as error:
        raise BackendError(
            f"what tuning found for {bench.subject.device} can't be kept in {cache_dir} ({error.strerror}); nothing has "
            "changed. Make that folder writable, or name another one with PIE_EDGE_CACHE"
        ) from error


def remembered(subject: Subject, cache_dir: Path | None) -> Tuning | None:
    """What an earlier tuning found for this device with this driver and these kernels."""
    found = record(subject, cache_dir).read()
    try:
        return None if found is None else _tuning(found)
    except (KeyError, TypeError, ValueError):
        return None


def remember(subject: Subject, cache_dir: Path | None, tuning: Tuning) -> None:
    record(subject, cache_dir).write(asdict(tuning))


def record(subject: Subject, cache_dir: Path | None) -> Record:
    """Where it is kept."""
    return Record(subject, cache_dir, "tuning")


def _tuning(found: Mapping[str, Any]) -> Tuning:
    linear = tuple((int(tokens), LinearVariant(**variant)) for tokens, variant in found["linear"])
    attention = {name: AttentionVariant(**found[name]) for name in ("decode", "prefill")}
    return Tuning(**{**found, **attention, "linear": linear})


def tune(bench: Bench, seconds: float = 60.0, report: Callable[[Choice], None] = lambda choice: None) -> Tuning:
    """The best of the variants that could be measured in so many seconds; each kernel is reported when it is decided."""
    tuner = _Tuner(bench, time.perf_counter() + seconds, report)
    default = found = bench.default
    if not bench.software:
        wider = (replace(found, interleaved=lanes) for lanes in (16, 64) if lanes != found.interleaved)
        found = tuner.best("rows interleaved", _always(products(1, _FOURS)), found, wider)
    for tokens, variant in default.linear:
        others = (_with_linear(found, tokens, other) for other in _linear_variants(bench.software, variant))
        found = tuner.best(f"linear, {tokens} tokens", _always(products(tokens, _FOURS)), found, others)
    other = replace(found, odd_bits=not found.odd_bits)
    found = tuner.best("codes of 5 and 6 bits", lambda tuning: products(1, _kept(tuning)), found, [other])
    found = tuner.best("attention, a decode", _always(attentions(1)), found, _decodes(found))
    return tuner.best("attention, a prefill", _always(attentions(64)), found, _prefills(found))


def _kept(tuning: Tuning) -> Encoding:
    """What codes of six bits are on the device."""
    return _SIXES if tuning.odd_bits else _BYTES


def _with_linear(tuning: Tuning, tokens: int, variant: LinearVariant) -> Tuning:
    return replace(tuning, linear=tuple((t, variant if t == tokens else v) for t, v in tuning.linear))


def _linear_variants(software: bool, variant: LinearVariant) -> Iterator[LinearVariant]:
    """All but the default. Software shares no columns among invocations: they would only wait for each other."""
    if variant.tile:
        yield from (replace(variant, groups=groups) for groups in (1, 2, 4) if groups != variant.groups)
        return
    for splits in (1,) if software else (1, 2, 4, 8):
        for groups in (8, 12, 16) if software else (1, 2, 4):
            if (splits, groups) != (variant.splits, variant.groups):
                yield LinearVariant(splits, groups)


def _decodes(tuning: Tuning) -> Iterator[Tuning]:
    given = tuning.decode
    for chunk in (given.chunk // 2, 2 * given.chunk):
        yield replace(tuning, decode=replace(given, chunk=chunk))


def _prefills(tuning: Tuning) -> Iterator[Tuning]:
    """Rows by invocation as they are held by default, or by workgroup whatever their width."""
    given = tuning.prefill
    for rows in (given.rows, 2 * given.rows):
        yield replace(tuning, held=0, prefill=replace(given, rows=rows))


Given = Callable[[Tuning], Chain]
"""What a variant runs: the same for all, or what it would make of the same weights."""


def _always(chain: Chain) -> Given:
    return lambda tuning: chain


class _Tuner:
    def __init__(self, bench: Bench, deadline: float, report: Callable[[Choice], None]) -> None:
        self._bench = bench
        self._deadline = deadline
        self._report = report

    def best(self, kernel: str, given: Given, default: Tuning, others: Iterable[Tuning]) -> Tuning:
        trials = {default: self._trial(given(default), default)}
        try:
            for variant in others:
                self._bench.session.stop.look()
                if time.perf_counter() > self._deadline:
                    break
                with suppress(PieError):
                    trials[variant] = self._trial(given(variant), variant)
            taken = self._winner(kernel, default, trials)
        finally:
            for trial in trials.values():
                trial.close()
        return taken

    def _winner(self, kernel: str, default: Tuning, trials: dict[Tuning, Trial]) -> Tuning:
        rounds, again = self._rounds(trials), dict[Tuning, list[float]]()
        best = min(rounds, key=lambda tuning: _ratio(rounds[tuning], rounds[default]))
        if _clearly_faster(rounds, best, default):
            again = self._rounds({tuning: trials[tuning] for tuning in (default, best)})
        taken = best if again and _clearly_faster(again, best, default) else default
        finished = all(len(one[default]) >= FEWEST for one in (rounds, again) if one)
        self._report(Choice(kernel, _medians(rounds), _medians(again), _name(taken, default), finished))
        return taken

    def _rounds(self, trials: Mapping[Tuning, Trial]) -> dict[Tuning, list[float]]:
        """Seconds of each round's runs, each beginning with another variant; fewer rounds if the time is over."""
        order = list(trials)
        rounds: dict[Tuning, list[float]] = {tuning: [] for tuning in order}
        for _ in range(ROUNDS):
            self._bench.session.stop.look()
            if time.perf_counter() > self._deadline:
                break
            for tuning in order:
                rounds[tuning].append(trials[tuning].seconds())
            order.append(order.pop(0))
        return rounds

    def _trial(self, chain: Chain, tuning: Tuning) -> Trial:
        return Trial(self._bench, chain, tuning)


def _medians(rounds: Mapping[Tuning, Sequence[float]]) -> dict[str, float]:
    """By the variants' names; the first is the default."""
    default = next(iter(rounds), None)
    return {_name(tuning, default): median(times) for tuning, times in rounds.items() if times and default}


def _name(tuning: Tuning, default: Tuning) -> str:
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


def _clearly_faster(rounds: Mapping[Tuning, Sequence[float]], one: Tuning, other: Tuning) -> bool:
    return len(rounds[one]) >= FEWEST and _ratio(rounds[one], rounds[other]) < 1 - MARGIN
