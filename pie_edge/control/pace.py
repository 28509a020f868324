"""How long steps take, and what follows from it: when the next step is closed, and how much of a prompt it may carry."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence, Set
from dataclasses import dataclass, replace

from pie_edge.control.queue import Work
from pie_edge.control.scheduler import Budget
from pie_edge.control.space import Space

WEIGHT = 0.2
"""Of the newest figure in a running average."""
ROW_WEIGHT = 0.5
"""The same for rows of prompts: a long prompt's get dearer with every chunk."""
MARGIN = 0.001
"""Seconds before the predicted end at which the next step is closed, at least: what forming one takes."""
LONGEST_MARGIN = 0.25
"""Of a step's time."""
WIDER, NARROWER = 2.0, 0.97
"""What the margin is multiplied by when a step was closed too late for the device, and when one wasn't: rarely more than one in
twenty is."""
PROMPT_SHARE = 0.07
"""How much longer than alone a prompt may run beside inferlets that decode; before that it waits for the steps under way."""
PATIENCE = 0.05
"""Of the last step's time: how long prompts wait for inferlets that decode."""
RECENT = 4
"""Steps without a single-token call after which nobody is said to decode."""
SMALLEST_CHUNK = 32
LONGEST_STEP = 0.3
"""Seconds that prompts may make a step take: pages of an inferlet that ends are free when the steps that write them are over, of
which there are two. Only slow devices ever notice."""
FIRST_CHUNK = 64
"""Rows of a prompt in a step before it is known what they take."""


@dataclass(slots=True)
class _Launched:
    rows: int
    singles: int
    began: float
    """When it was put on the device; a step that waits behind another begins later."""


class Pace:
    """Times are seconds of one monotonic clock. ``rows`` of a step are all its tokens, *singles* its single-token calls."""

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}
        """Of a step by the magnitude of its rows."""
        self._decodes: dict[int, float] = {}
        """Of a step of single tokens alone, by their magnitude."""
        self._row: float | None = None
        """What a row of a prompt adds to a step."""
        self._rate: float | None = None
        """Seconds a row, in steps that have prompts."""
        self._launched: deque[_Launched] = deque()
        self._free_from = 0.0
        self._took = 0.0
        self._margin = MARGIN
        self._held = False
        """Whether calls wait for the running step to end."""
        self._recent: deque[Set[Space]] = deque(maxlen=RECENT)
        """Whose singles were in the last steps."""

    def launched(self, rows: int, singles: Collection[Space], now: float) -> None:
        """A step was put on the device; ``singles`` is whose its single-token calls are, one each."""
        self._launched.append(_Launched(rows, len(singles), now))
        self._held = False
        self._recent.append(frozenset(singles))

    def landed(self, now: float) -> None:
        """The oldest step has ended."""
        step = self._launched.popleft()
        took = now - max(step.began, self._free_from)
        self._free_from, self._took = now, took
        # Steps end earlier than predicted, and a loop that is busy with guests is late.
        change = WIDER if self._held and not self._launched else NARROWER
        self._margin = max(min(change * self._margin, LONGEST_MARGIN * took), MARGIN)
        _average(self._seconds, step.rows.bit_length(), took)
        if step.rows - step.singles >= SMALLEST_CHUNK:
            self._rate = _nearer(self._rate, took / step.rows)
        if step.singles == step.rows:
            _average(self._decodes, step.singles.bit_length(), took)
        elif self._decodes:
            self._row = _nearer(self._row, max(took - self._decode(step.singles), 0.0) / (step.rows - step.singles))

    def remaining(self, now: float) -> float:
        """Seconds until the next step should be closed; 0 if nothing is known or nothing runs."""
        if not self._launched:
            return 0.0
        step = self._launched[0]
        expected = self._seconds.get(step.rows.bit_length(), 0.0)
        return max(max(step.began, self._free_from) + expected - self._margin - now, 0.0)

    @property
    def courtesy(self) -> float:
        """Seconds that an inferlet's other contexts wait for those that were just answered, so that they share the next step."""
        return max(PATIENCE * self._took, 2 * MARGIN)

    def hold(self, waiting: Sequence[Work], asking: int, alive: Set[Space], now: float) -> float:
        """Work-conserving: seconds until a step should be formed of the calls that wait, 0 for now. ``asking`` of the inferlets
        that are ``alive`` have calls waiting or under way.

        At once when the device is idle. Behind a running step: when all ask, or shortly before the running step's predicted
        end, the earlier the more often that was too late. Prompts alone wait a moment longer, for those who decode to come
        back from the running step: together they take less time than one after the other, and nobody waits for two chunks.
        """
        if all(work.remaining > 1 for work in waiting) and self._decoding(waiting, alive):
            patience = PATIENCE * self._took
            return self.remaining(now) + patience if self._launched else max(self._free_from + patience - now, 0.0)
        wait = 0.0 if asking >= len(alive) else self.remaining(now)
        self._held = wait > 0
        return wait

    def budget(self, limits: Budget, waiting: Sequence[Work], alive: Set[Space]) -> Budget:
        """``limits`` with the chunks that suit the device, and whether somebody decodes beside the prompts that wait."""
        singles = sum(work.remaining == 1 for work in waiting)
        if singles == len(waiting):
            return limits
        limits = replace(limits, prompt_rows=self._longest())
        # Once for each magnitude, single tokens have a step to themselves: what prompts add is told from that.
        if singles and singles.bit_length() not in self._decodes:
            return replace(limits, shared_rows=0)
        decoding = self._decoding(waiting, alive)
        chunk = self._chunk(limits.rows, limits.shared_rows, max(singles, decoding))
        return replace(limits, shared_rows=chunk, decoding=decoding > 0)

    def _longest(self) -> int:
        """Rows of prompts that a step may have: a power of two, so that a prompt is cut the same way most times."""
        if self._rate is None:
            return FIRST_CHUNK
        rows = max(int(LONGEST_STEP / max(self._rate, 1e-9)), 2 * SMALLEST_CHUNK)
        return 1 << (rows.bit_length() - 1)

    def _decoding(self, waiting: Iterable[Work], alive: Set[Space]) -> int:
        """Single-token calls of the fullest of the last steps that may come again any moment: of inferlets that are alive, and
        not those whose prompts wait now."""
        prompts = {work.space for work in waiting if work.remaining > 1}
        return max((len((singles & alive) - prompts) for singles in self._recent), default=0)

    def _chunk(self, most: int, unknown: int, decoding: int) -> int:
        """Rows of prompts in a step beside so many inferlets that decode: as few as cost the prompt ``PROMPT_SHARE``.

        A prompt alone takes ``step/most + row`` seconds a row in steps of ``most`` rows. Beside others it takes
        ``others/c + row`` in chunks of ``c`` rows, where ``others`` is a step without the prompt. ``unknown`` is the answer
        before the figures are known.
        """
        if self._row is None:
            return unknown
        spare = PROMPT_SHARE * self._row + (1 + PROMPT_SHARE) * self._decode(1) / most
        return min(max(int(self._decode(decoding) / spare), SMALLEST_CHUNK), most)

    def _decode(self, singles: int) -> float:
        """Seconds of a step of so many single tokens, from the nearest magnitude that is known."""
        size = max(singles, 1).bit_length()
        return self._decodes[min(self._decodes, key=lambda known: abs(known - size))]


def _average(known: dict[int, float], key: int, value: float) -> None:
    before = known.get(key, value)
    known[key] = before + WEIGHT * (value - before)


def _nearer(before: float | None, value: float) -> float:
    return value if before is None else before + ROW_WEIGHT * (value - before)
