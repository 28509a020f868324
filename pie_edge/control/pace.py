"""How long steps take: a running average by size, to know when the step under way will end."""

from __future__ import annotations

from collections import deque

WEIGHT = 0.2
MARGIN = 0.001
"""Seconds before the predicted end at which the next step is closed: what forming one takes."""


class Pace:
    """Times are seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}
        self._launched: deque[float] = deque()
        self._rows: deque[int] = deque()

    def launched(self, rows: int, now: float) -> None:
        self._launched.append(now)
        self._rows.append(rows)

    def landed(self, rows: int, now: float) -> None:
        """The oldest step has ended. One that waited behind it starts now."""
        began = self._launched.popleft()
        self._rows.popleft()
        if self._launched:
            self._launched[0] = now
        size, took = rows.bit_length(), now - began
        known = self._seconds.get(size, took)
        self._seconds[size] = known + WEIGHT * (took - known)

    def remaining(self, now: float) -> float:
        """Seconds until the next step should be closed; 0 if nothing is known or nothing runs."""
        if not self._launched:
            return 0.0
        expected = self._seconds.get(self._rows[0].bit_length(), 0.0)
        return max(self._launched[0] + expected - MARGIN - now, 0.0)
