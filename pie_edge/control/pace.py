"""How long steps take, and what follows from it: when the next step is closed, and how much of a prompt it may carry."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from pie_edge.control.scheduler import Budget

WEIGHT = 0.2
"""Of the newest figure in a running average."""
MARGIN = 0.001
"""Seconds before the predicted end at which the next step is closed: what forming one takes."""
PROMPT_SHARE = 0.1
"""How much longer than alone a prompt may run beside inferlets that decode; before that it waits for the step under way."""
PATIENCE = 0.05
"""Of the last step's time: how long prompts wait for inferlets that decode."""
RECENT = 4
"""Steps without a single-token call after which nobody is said to decode."""
SMALLEST_CHUNK = 32


@dataclass(frozen=True, slots=True)
class _Launched:
    rows: int
    singles: int
    began: float
    """When it was put on the device; a step that waits behind another begins later."""


class Pace:
    """Times are seconds of one monotonic clock. ``rows`` of a step are all its tokens, ``singles`` its single-token calls."""

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}
        """Of a step by the magnitude of its rows."""
        self._decodes: dict[int, float] = {}
        """Of a step of single tokens alone, by their magnitude."""
        self._row: float | None = None
        """What a row of a prompt adds to a step."""
        self._launched: deque[_Launched] = deque()
        self._free_from = 0.0
        self._took = 0.0
        self._recent: deque[int] = deque(maxlen=RECENT)

    def launched(self, rows: int, singles: int, now: float) -> None:
        self._launched.append(_Launched(rows, singles, now))
        self._recent.append(singles)

    def landed(self, now: float) -> None:
        """The oldest step has ended."""
        step = self._launched.popleft()
        took = now - max(step.began, self._free_from)
        self._free_from, self._took = now, took
        _average(self._seconds, step.rows.bit_length(), took)
        if step.singles == step.rows:
            _average(self._decodes, step.singles.bit_length(), took)
        elif self._decodes:
            row = max(took - self._decode(step.singles), 0.0) / (step.rows - step.singles)
            self._row = row if self._row is None else self._row + WEIGHT * (row - self._row)

    def remaining(self, now: float) -> float:
        """Seconds until the next step should be closed; 0 if nothing is known or nothing runs."""
        if not self._launched:
            return 0.0
        step = self._launched[0]
        expected = self._seconds.get(step.rows.bit_length(), 0.0)
        return max(max(step.began, self._free_from) + expected - MARGIN - now, 0.0)

    def hold(self, asking: int, alive: int, singles: int, now: float) -> float:
        """Work-conserving: seconds until a step should be formed, 0 for now. ``asking`` of ``alive`` inferlets have calls
        waiting or under way, ``singles`` of those that wait are single tokens.

        At once when the device is idle. Behind a running step: when all ask, or shortly before the running step's predicted
        end. Prompts alone wait a moment longer, for those who decode to come back from the running step: together they take
        less time than one after the other, and nobody waits for two chunks.
        """
        if not singles and self.decoding:
            patience = PATIENCE * self._took
            return self.remaining(now) + patience if self._launched else max(self._free_from + patience - now, 0.0)
        return 0.0 if asking >= alive else self.remaining(now)

    @property
    def decoding(self) -> int:
        """Single-token calls of the fullest of the last steps: those that may ask again any moment."""
        return max(self._recent, default=0)

    def budget(self, limits: Budget, singles: int) -> Budget:
        """``limits`` with the chunk that suits the device, for a step that ``singles`` single-token calls wait for."""
        # Once for each magnitude, single tokens have a step to themselves: what prompts add is told from that.
        measure = singles > 0 and singles.bit_length() not in self._decodes
        chunk = 0 if measure else self._chunk(limits.rows, limits.shared_rows)
        return replace(limits, shared_rows=chunk, decoding=self.decoding > 0)

    def _chunk(self, most: int, unknown: int) -> int:
        """Rows of prompts in a step beside inferlets that decode: as few as cost the prompt ``PROMPT_SHARE``.

        A prompt alone takes ``step/most + row`` seconds a row in steps of ``most`` rows. Beside others it takes
        ``others/c + row`` in chunks of ``c`` rows, where ``others`` is a step without the prompt. ``unknown`` is the answer
        before the figures are known.
        """
        if self._row is None:
            return unknown
        spare = PROMPT_SHARE * self._row + (1 + PROMPT_SHARE) * self._decode(1) / most
        return min(max(int(self._decode(self.decoding) / spare), SMALLEST_CHUNK), most)

    def _decode(self, singles: int) -> float:
        """Seconds of a step of so many single tokens, from the nearest magnitude that is known."""
        size = max(singles, 1).bit_length()
        return self._decodes[min(self._decodes, key=lambda known: abs(known - size))]


def _average(known: dict[int, float], key: int, value: float) -> None:
    before = known.get(key, value)
    known[key] = before + WEIGHT * (value - before)
