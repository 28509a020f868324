"""Which calls run in the next step: short ones first, then slices of long prefills, oldest first.

Chunked prefill after Sarathi-Serve (arXiv:2403.02310): decodes never wait behind more than one chunk of somebody
else's prompt, and a prompt alone gets the whole step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pie_edge.control.queue import Work


@dataclass(frozen=True, slots=True)
class Budget:
    """What one step holds: token rows, sequences, rows read out, page-table entries."""

    rows: int
    sequences: int
    sampled: int
    entries: int


@dataclass(frozen=True, slots=True)
class Slice:
    """``count`` rows of a work from ``first``; ``last`` when nothing of it remains after."""

    work: Work
    first: int
    count: int

    @property
    def last(self) -> bool:
        return self.first + self.count == len(self.work.call.tokens)

    @property
    def end(self) -> int:
        """The context's length after this slice, in tokens."""
        return self.work.call.start + self.first + self.count


def pick(heads: Sequence[Work], budget: Budget, page_size: int) -> tuple[Slice, ...]:
    """The next step's slices. ``heads`` come oldest first; single-token calls go before longer ones."""
    picked: list[Slice] = []
    rows, sampled, entries = budget.rows, budget.sampled, budget.entries
    for work in sorted(heads, key=lambda w: w.remaining > 1):
        count = _rows_for(work, rows)
        if count == 0 or len(picked) == budget.sequences:
            continue
        candidate = Slice(work, work.done, count)
        pages = -(-candidate.end // page_size)
        outs = len(work.call.rows) if candidate.last else 0
        if outs > sampled or pages > entries:
            continue
        picked.append(candidate)
        rows, sampled, entries = rows - count, sampled - outs, entries - pages
    return tuple(picked)


def _rows_for(work: Work, available: int) -> int:
    """How many of its rows may run now; 0 when its last rows belong together and don't fit beside the others."""
    if work.remaining <= available:
        return work.remaining
    splittable = work.unsplittable_from - work.done
    return max(min(available, splittable), 0)
