"""Which calls run in the next step: short ones first, then slices of long prefills, oldest first.

Chunked prefill after Sarathi-Serve (arXiv:2403.02310): decodes never wait behind more than one chunk of somebody
else's prompt, and a prompt alone gets the whole step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pie_edge.control.pages import Entry
from pie_edge.control.queue import Work


@dataclass(frozen=True, slots=True)
class Budget:
    """What one step holds: token rows, sequences, rows read out, page-table entries. ``shared_rows`` is the most rows when
    single-token calls run beside a prompt: the longest that a decode waits for somebody else's prefill."""

    rows: int
    sequences: int
    sampled: int
    entries: int
    shared_rows: int


@dataclass(frozen=True, slots=True)
class Slice:
    """``count`` rows of a work from ``first``; ``last`` when nothing of it remains after; ``end`` is the place after them."""

    work: Work
    first: int
    count: int
    end: int

    @property
    def last(self) -> bool:
        return self.first + self.count == len(self.work.tokens)


def pick(heads: Sequence[Work], budget: Budget, page_size: int) -> tuple[Slice, ...]:
    """The next step's slices. ``heads`` come in the order they deserve; single-token calls go before longer ones.

    Two calls that touch a page which one of them writes never share a step.
    """
    step = _Step(budget, page_size)
    ordered = sorted(heads, key=lambda work: work.remaining > 1)
    for work in ordered:
        if len(step.picked) == budget.sequences:
            break
        if work.remaining > 1 and step.picked and step.picked[0].work.remaining == 1:
            step.rows = min(step.rows, max(budget.shared_rows - step.used, 0))
        step.try_to_add(work)
    return tuple(step.picked)


class _Step:
    def __init__(self, budget: Budget, page_size: int) -> None:
        self.rows, self.sampled, self.entries = budget.rows, budget.sampled, budget.entries
        self.picked: list[Slice] = []
        self.used = 0
        self._page_size = page_size
        self._read: set[Entry] = set()
        self._written: set[Entry] = set()

    def try_to_add(self, work: Work) -> None:
        count = _rows_for(work, self.rows)
        if count == 0:
            return
        part = Slice(work, work.done, count, work.end(count))
        table = work.placement.table(part.end, self._page_size)
        outs = len(work.rows) if part.last else 0
        if outs > self.sampled or len(table) > self.entries:
            return
        written = {entry for entry, _ in work.placement.writes(part.first, count, self._page_size)}
        if not written.isdisjoint(self._read) or not self._written.isdisjoint(table):
            return
        self._read.update(table)
        self._written |= written
        self.picked.append(part)
        self.rows, self.sampled, self.entries = self.rows - count, self.sampled - outs, self.entries - len(table)
        self.used += count


def _rows_for(work: Work, available: int) -> int:
    """How many of its rows may run now; 0 when its last rows belong together and don't fit beside the others."""
    if work.remaining <= available:
        return work.remaining
    splittable = work.unsplittable_from - work.done
    return max(min(available, splittable), 0)
