"""Which calls run in the next step: single tokens, and slices of long prefills beside them, oldest first.

Chunked prefill after Sarathi-Serve (arXiv:2403.02310): decodes never wait behind more than one chunk of somebody
else's prompt, and a prompt alone gets the whole step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pie_edge.control.pages import Entry, WorkingSet
from pie_edge.control.queue import Work
from pie_edge.control.recurrence import Span


@dataclass(frozen=True, slots=True)
class Budget:
    """What one step holds: token rows, sequences, rows of logits read out, page-table entries.

    ``shared_rows`` is the most rows of prompts when single-token calls are in the step, or with ``decoding`` may ask for that
    any moment: what a decode waits for somebody else's prefill. 0 keeps prompts out of a step that has single tokens.
    ``prompt_rows`` is the most of them in any step, 0 as many as it holds.
    """

    rows: int
    sequences: int
    sampled: int
    entries: int
    shared_rows: int
    decoding: bool = False
    prompt_rows: int = 0


@dataclass(slots=True, eq=False)
class Slice:
    """``count`` rows of a work from ``first``; ``end`` is the place after them, ``last`` whether nothing of it remains after.

    ``table`` is the entries they read, ``fresh`` the bits they write in each, by its index.
    """

    work: Work
    first: int
    count: int
    end: int
    last: bool
    table: tuple[Entry, ...]
    fresh: Mapping[int, int]
    span: Span | None = None
    """What recurrent state they run on, once that is claimed, where the model has such."""

    @property
    def writes(self) -> list[tuple[Entry, int]]:
        """The entries they write, with the bits."""
        return [(self.table[index], bits) for index, bits in self.fresh.items()]


def pick(heads: Sequence[Work], budget: Budget, page_size: int) -> tuple[Slice, ...]:
    """The next step's slices, single-token calls first. ``heads`` come in the order they deserve.

    The first of the longer calls is sure of a chunk, and the single tokens of the rest of the step, so that neither kind
    starves the other. Two calls that touch a page which one of them writes never share a step.
    """
    singles = [work for work in heads if work.remaining == 1]
    longer = [work for work in heads if work.remaining > 1] if budget.shared_rows or not singles else []
    step = _Step(budget, page_size)
    prompt_rows = max(budget.rows - min(len(singles), budget.sequences - 1), 1)
    if budget.prompt_rows:
        prompt_rows = min(prompt_rows, budget.prompt_rows)
    if singles or budget.decoding:
        prompt_rows = min(prompt_rows, budget.shared_rows)
    for work in longer[:1]:
        # Rows of one epilogue may be more than a chunk: they can't wait for a step with more room.
        count = _rows_for(work, prompt_rows) or work.remaining
        prompt_rows = max(prompt_rows - count, 0)
        step.try_to_add(work, count)
    for work in singles:
        step.try_to_add(work, 1)
    for work in longer[1:]:
        prompt_rows -= step.try_to_add(work, _rows_for(work, min(prompt_rows, step.rows)))
    return tuple(sorted(step.picked, key=lambda part: part.work.remaining > 1))


class _Step:
    def __init__(self, budget: Budget, page_size: int) -> None:
        self.rows, self.sequences = budget.rows, budget.sequences
        self.sampled, self.entries = budget.sampled, budget.entries
        self.picked: list[Slice] = []
        self._page_size = page_size
        self._contexts: set[WorkingSet] = set()
        self._read: set[Entry] = set()
        self._written: set[Entry] = set()

    def try_to_add(self, work: Work, count: int) -> int:
        """The next ``count`` rows of a work, if the step holds them. How many were added."""
        if not 0 < count <= self.rows or not self.sequences:
            return 0
        placement, end = work.placement, work.end(count)
        table, fresh = placement.table(end, self._page_size), placement.fresh(work.done, count, self._page_size)
        part = Slice(work, work.done, count, end, count == work.remaining, table, fresh)
        outs = len(work.logit_rows) if part.last else 0
        if outs > self.sampled or len(table) > self.entries or not self._separate(part):
            return 0
        self.picked.append(part)
        self.rows, self.sequences = self.rows - count, self.sequences - 1
        self.sampled, self.entries = self.sampled - outs, self.entries - len(table)
        return count

    def _separate(self, part: Slice) -> bool:
        """Whether it touches nothing that another slice of the step writes, nor the other way round; then note what it does."""
        context = part.work.context
        if context is not None:
            # A context's entries are its own, so it stands for all of them.
            others = context not in self._contexts
            self._contexts.add(context)
            return others
        written = {part.table[index] for index in part.fresh}
        if not written.isdisjoint(self._read) or not self._written.isdisjoint(part.table):
            return False
        self._read.update(part.table)
        self._written |= written
        return True


def _rows_for(work: Work, available: int) -> int:
    """How many of its rows may run now; 0 when its last rows belong together and don't fit beside the others."""
    if work.remaining <= available:
        return work.remaining
    splittable = work.unsplittable_from - work.done
    return max(min(available, splittable), 0)
