"""Things measured in turns in one run, and how their figures are told: medians, extremes, ratios."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Measure = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Summary:
    """Several measurements of one thing."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Summary:
        return cls(statistics.median(values), min(values), max(values))

    def show(self, digits: int = 0) -> str:
        """``139 (131 to 142)``"""
        return f"{self.median:.{digits}f} ({self.low:.{digits}f} to {self.high:.{digits}f})"


def in_turns(
    sides: Mapping[str, Measure], rounds: int, before: Callable[[], None] = lambda: None
) -> dict[str, list[float]]:
    """Each side's figures: first, second, …, first, second, …, so that whatever else the machine does meets all of them.

    ``before`` is called before each measurement.
    """
    found: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, measure in sides.items():
            before()
            found[name].append(measure())
    return found


def ratio(ours: Sequence[float], peer: Sequence[float]) -> Summary:
    """Ours over the peer's, round by round: a slow moment of the machine slows both of its neighbours."""
    return Summary.of([one / other for one, other in zip(ours, peer, strict=True)])


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
