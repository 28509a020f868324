"""What the engine counts while it runs. Counting costs a step a few microseconds; figures are put together when somebody asks.

Times are seconds of ``time.perf_counter``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Mapping, Sequence, Sized
from typing import Any, Protocol

from pie_edge.control.batch import Batch
from pie_edge.control.queue import HostTensor, Work
from pie_edge.control.space import Space
from pie_edge.control.usage import Usage

SECONDS = tuple(float(f"{step}e{power}") for power in range(-5, 2) for step in (1, 2, 5))
"""Bounds of histograms of times: 10 µs to 50 s."""
SIZES = tuple(2**power for power in range(15))
SHARES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)
WINDOW = 10.0
"""Seconds that the device's idle share and the queue's growth are of."""


class Timeline(Protocol):
    """Where it is written down what happened when. Spans of one ``track`` follow each other or nest; those that overlap have a
    ``key`` of their own each."""

    def span(
        self, track: str, name: str, began: float, ended: float, key: int | None = None, **details: Any
    ) -> None: ...


class TokenSink(Protocol):
    """Hears of the tokens that each space reads and chooses."""

    def answered(self, work: Work, results: Sequence[HostTensor]) -> None: ...

    def closed(self, space: Space) -> None: ...


class Histogram:
    """How many values were at most each of the ``bounds``, one more count for those beyond the last, and their sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def snapshot(self) -> dict[str, Any]:
        """Plain data. The counts aren't added up."""
        return {"bounds": list(self.bounds), "counts": list(self.counts), "sum": self.sum}


class Trend:
    """One figure or several over the last ``WINDOW`` seconds, looked at once a second."""

    def __init__(self) -> None:
        self.due = 0.0
        self._seen: deque[tuple[float, tuple[float, ...]]] = deque()

    def look(self, now: float, *figures: float) -> None:
        self.due = now + 1.0
        self._seen.append((now, figures))
        while len(self._seen) > 2 and self._seen[1][0] <= now - WINDOW:
            self._seen.popleft()

    def slope(self, number: int) -> float:
        """What the figure of this number grew by a second; 0 before it was looked at twice."""
        if len(self._seen) < 2:
            return 0.0
        (first, before), (last, after) = self._seen[0], self._seen[-1]
        return (after[number] - before[number]) / max(last - first, 1e-9)


class Step:
    """When the stages of a step's forming began, and when it was on the device. Not frozen: one is made for every step."""

    __slots__ = ("began", "built", "chosen", "landed", "launched", "number", "placed")

    def __init__(self, number: int, began: float, chosen: float, placed: float, built: float) -> None:
        self.number = number
        self.began, self.chosen, self.placed, self.built = began, chosen, placed, built
        self.launched = self.landed = 0.0


class Statistics:
    """``ended`` is what spaces used that are closed. ``busy`` are seconds that the device computed, ``starved`` those that it
    didn't while calls waited for a step to be formed, ``control`` those that forming steps and handing results out took."""

    def __init__(self, now: float) -> None:
        self.opened = now
        self.timeline: Timeline | None = None
        self.tokens: TokenSink | None = None
        self.steps = self.rows = self.largest_step = 0
        self.ended = Usage()
        self.busy = self.starved = self.control = 0.0
        self.queued = Histogram(SECONDS)
        self.first_results = Histogram(SECONDS)
        self.intervals = Histogram(SECONDS)
        self.step_rows = Histogram(SIZES)
        self.step_calls = Histogram(SIZES)
        self.step_pages = Histogram(SIZES)
        self.control_times = Histogram(SECONDS)
        self.device_times = Histogram(SECONDS)
        self.cached_shares = Histogram(SHARES)
        self.trend = Trend()
        self._formed = 0
        self._free_from = now

    def histograms(self) -> Mapping[str, Histogram]:
        return {
            "queue_seconds": self.queued,
            "inferlet_first_result_seconds": self.first_results,
            "result_interval_seconds": self.intervals,
            "step_rows": self.step_rows,
            "step_calls": self.step_calls,
            "step_pages": self.step_pages,
            "step_control_seconds": self.control_times,
            "step_device_seconds": self.device_times,
            "prompt_cached_share": self.cached_shares,
        }

    def forming(self, began: float, chosen: float, placed: float, built: float) -> Step:
        self._formed += 1
        return Step(self._formed, began, chosen, placed, built)

    def launched(self, step: Step, batch: Batch, idle: bool, now: float) -> None:
        """The step is on the device, which was ``idle`` before. Calls that were asked for and have begun in it have waited
        until now."""
        step.launched = now
        longest = 0.0
        for part in batch.slices:
            work = part.work
            if work.asked:
                waited = now - work.asked
                self.queued.add(waited)
                longest = max(longest, waited)
                if self.timeline is not None:
                    self.timeline.span("queue", work.space.name, work.asked, now, work.arrival, tokens=len(work.tokens))
                work.asked = 0.0
        if idle:
            self.starved += min(longest, now - self._free_from)
        counts = batch.inputs.counts
        self.step_rows.add(counts.rows)
        self.step_calls.add(len(batch.slices))
        self.step_pages.add(counts.entries)
        if self.timeline is not None:
            _tell_forming(self.timeline, step)

    def landed(self, step: Step, now: float) -> None:
        """The device is done with the step."""
        began = max(step.launched, self._free_from)
        step.landed = self._free_from = now
        self.busy += now - began
        self.device_times.add(now - began)
        if self.timeline is not None:
            self.timeline.span("device", f"step {step.number}", began, now)

    def handed_out(self, step: Step, batch: Batch, began: float, now: float) -> None:
        """Its results are with those who asked, which was done from ``began`` to ``now``."""
        self.steps += 1
        self.rows += batch.inputs.counts.rows
        self.largest_step = max(self.largest_step, len(batch.slices))
        spent = step.launched - step.began + now - began
        self.control += spent
        self.control_times.add(spent)
        if self.timeline is not None:
            self.timeline.span("control", "hand out", began, now, step=step.number)
            _tell_batch(self.timeline, step, batch)

    def look(self, calls: Sized, now: float) -> None:
        """Once a second, at how many calls there are and how long the device was busy."""
        if now >= self.trend.due:
            self.trend.look(now, len(calls), self.busy)


def _tell_forming(timeline: Timeline, step: Step) -> None:
    number = step.number
    timeline.span("control", "form a step", step.began, step.launched, step=number)
    timeline.span("control", "choose", step.began, step.chosen, step=number)
    timeline.span("control", "find pages", step.chosen, step.placed, step=number)
    timeline.span("control", "build", step.placed, step.built, step=number)
    timeline.span("control", "put on the device", step.built, step.launched, step=number)


def _tell_batch(timeline: Timeline, step: Step, batch: Batch) -> None:
    timeline.span(
        "batch",
        f"step {step.number}",
        step.launched,
        step.landed,
        step.number,
        rows=batch.inputs.counts.rows,
        calls={f"{part.work.space.name}#{part.work.space.number}": part.count for part in batch.slices},
    )
