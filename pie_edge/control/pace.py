"""How long steps take, and what follows from it: when the next step is closed, and how much of a prompt it may carry."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from pie_edge.control.scheduler import Budget

WEIGHT = 0.2
"""Of the newest figure in a running average."""
MARGIN = 0.001
"""Seconds before the predicted end at which the next step is closed: what forming one takes."""
PROMPT_SHARE = 0.15
"""How much later than alone a prompt may be done beside inferlets that decode."""
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
        self._decoding: dict[int, float] = {}
        """Of a step without prompts by the magnitude of its singles."""
        self._prompt_row: float | None = None
        """What a row of a prompt adds to a step."""
        self._launched: deque[_Launched] = deque()
        self._free_from = 0.0
        self._recent: deque[int] = deque(maxlen=RECENT)

    def launched(self, rows: int, singles: int, now: float) -> None:
        self._launched.append(_Launched(rows, singles, now))
        self._recent.append(singles)

    def landed(self, now: float) -> None:
        """The oldest step has ended."""
        step = self._launched.popleft()
        took = now - max(step.began, self._free_from)
        self._free_from = now
        _average(self._seconds, step.rows.bit_length(), took)
        if step.singles == step.rows:
            _average(self._decoding, step.singles.bit_length(), took)
        else:
            row = max(took - self._decode_step(step.singles), 0.0) / (step.rows - step.singles)
            known = row if self._prompt_row is None else self._prompt_row
            self._prompt_row = known + WEIGHT * (row - known)

    def remaining(self, now: float) -> float:
        """Seconds until the next step should be closed; 0 if nothing is known or nothing runs."""
        if not self._launched:
            return 0.0
        step = self._launched[0]
        expected = self._seconds.get(step.rows.bit_length(), 0.0)
        return max(max(step.began, self._free_from) + expected - MARGIN - now, 0.0)

    def hold(self, asking: int, alive: int, now: float) -> float:
        """Work-conserving: seconds until a step should be formed, 0 for now.

        At once when the device is idle. Behind a running step: when all that are ``alive`` ask, or shortly before the running
        step's predicted end.
        """
        return 0.0 if asking >= alive else self.remaining(now)

    @property
    def decoding(self) -> int:
        """Single-token calls of the fullest of the last steps: those that may ask again any moment."""
        return max(self._recent, default=0)

    def budget(self, limits: Budget) -> Budget:
        """``limits`` with the chunk that suits the device, and whether somebody decodes."""
        return replace(limits, shared_rows=self.chunk(limits.rows, limits.shared_rows), decoding=self.decoding > 0)

    def chunk(self, most: int, unknown: int) -> int:
        """Rows of a step in which a prompt runs beside inferlets that decode: as few as cost the prompt ``PROMPT_SHARE``.

        A prompt alone takes ``a/most + b`` seconds a row in steps of ``most`` rows: ``a`` for a step, ``b`` for a row. Beside
        others it takes ``d/c + b`` in chunks of ``c`` rows, where ``d`` is the others' own step. ``unknown`` is the answer
        before the figures are known.
        """
        row, alone = self._prompt_row, self._decode_step(1)
        if row is None or not alone:
            return unknown
        others = max(self._decode_step(self.decoding), alone)
        spare = PROMPT_SHARE * row + (1 + PROMPT_SHARE) * alone / most
        return min(max(int(others / spare) + self.decoding, SMALLEST_CHUNK), most)

    def _decode_step(self, singles: int) -> float:
        """Seconds of a step of so many single-token calls; the nearest smaller one known, else the smallest; 0 for none."""
        if not self._decoding or not singles:
            return 0.0
        size = singles.bit_length()
        return self._decoding[max((known for known in self._decoding if known <= size), default=min(self._decoding))]


def _average(known: dict[int, float], key: int, value: float) -> None:
    before = known.get(key, value)
    known[key] = before + WEIGHT * (value - before)
