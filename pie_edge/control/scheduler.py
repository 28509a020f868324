"""Which calls run in the next step: short ones first, then slices of long prefills, oldest first.

Chunked prefill after Sarathi-Serve (arXiv:2403.02310): decodes never wait behind more than one chunk of somebody
else's prompt, and a prompt alone gets the whole step.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pie_edge.control.pages import Entry
from pie_edge.control.queue import Work


@dataclass(frozen=True, slots=True)
class Budget:
    """What one step holds: token rows, sequences, rows read out, page-table entries. ``shared_rows`` is the most rows when
    single-token calls run beside a prompt, or with ``decoding`` may ask for that any moment: the longest that a decode waits
    for somebody else's prefill."""

    rows: int
    sequences: int
    sampled: int
    entries: int
    shared_rows: int
    decoding: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Slice:
    """``count`` rows of a work from ``first``; ``last`` when nothing of it remains after; ``end`` is the place after them.

    ``table`` is the entries they read, ``fresh`` the bits they write in each, by its index.
    """

    work: Work
    first: int
    count: int
    end: int
    table: tuple[Entry, ...]
    fresh: Mapping[int, int]

    @property
    def last(self) -> bool:
        return self.first + self.count == len(self.work.tokens)

    @property
    def writes(self) -> list[tuple[Entry, int]]:
        """The entries they write, with the bits."""
        return [(self.table[index], bits) for index, bits in self.fresh.items()]


def pick(heads: Sequence[Work], budget: Budget, page_size: int) -> tuple[Slice, ...]:
    """The next step's slices. ``heads`` come in the order they deserve; single-token calls go before longer ones.

    Two calls that touch a page which one of them writes never share a step.
    """
    step = _Step(budget, page_size)
    ordered = sorted(heads, key=lambda work: work.remaining > 1)
    for work in ordered:
        if len(step.picked) == budget.sequences:
            break
        shared = budget.decoding or (step.picked and step.picked[0].work.remaining == 1)
        if shared and work.remaining > 1:
            step.rows = min(step.rows, max(budget.shared_rows - step.used, 0))
        step.try_to_add(work)
    return tuple(step.picked)


class _Step:
    def __init__(self, budget: Budget, page_size: int) -> None:
        self.rows, self.sampled, self.entries = budget.rows, budget.sampled, budget.entries
        self.picked: list[Slice] = []
        self.used = 0
        self._page_size = page_size
        self._read: set[Hashable] = set()
        self._written: set[Hashable] = set()

    def try_to_add(self, work: Work) -> None:
        count = _rows_for(work, self.rows)
        if count == 0:
            return
        placement, end = work.placement, work.end(count)
        table, fresh = placement.table(end, self._page_size), placement.fresh(work.done, count, self._page_size)
        part = Slice(work, work.done, count, end, table, fresh)
        outs = len(work.rows) if part.last else 0
        if outs > self.sampled or len(table) > self.entries or not self._separate(part):
            return
        self.picked.append(part)
        self.rows, self.sampled, self.entries = self.rows - count, self.sampled - outs, self.entries - len(table)
        self.used += count

    def _separate(self, part: Slice) -> bool:
        """Whether it touches nothing that another slice of the step writes, nor the other way round; then note what it does."""
        context = part.work.context
        # A context's entries are its own, so it stands for all of them.
        read: Iterable[Hashable] = part.table if context is None else (context,)
        written = {part.table[index] for index in part.fresh} if context is None else {context}
        if not written.isdisjoint(self._read) or not self._written.isdisjoint(read):
            return False
        self._read.update(read)
        self._written |= written
        return True


def _rows_for(work: Work, available: int) -> int:
    """How many of its rows may run now; 0 when its last rows belong together and don't fit beside the others."""
    if work.remaining <= available:
        return work.remaining
    splittable = work.unsplittable_from - work.done
    return max(min(available, splittable), 0)
