"""Keys behind every layer's window: their pages go back to the pool while their context goes on.

Where each layer sees only the last ``window`` tokens (by position), a row at position p sees no key at p − window or before. So
once a context's next row is at p, whole pages before p − window are nobody's, less a page of margin: a context may always go
back by a page's tokens. One that goes back further, to where a key is missed, is refused. Pure.

Pages are only taken from *plain* contexts, whose positions are their places; where some layer sees everything, from none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pie_edge.control.gone import Gone, part_after
from pie_edge.control.pages import UNMAPPED, PagePool, WorkingSet
from pie_edge.control.queue import Work
from pie_edge.errors import Irreversible


@dataclass(frozen=True, slots=True)
class Behind:
    """``window`` is what the furthest-looking layer sees; 0 where one sees all."""

    pool: PagePool
    window: int

    def longest(self, context: int) -> int:
        """How many tokens a context can have, of the ``context`` that the model is good for: no more than all pages hold, but
        where they are released a context may go on."""
        return context if self.window else min(context, self.pool.total * self.pool.page_size)

    def check(self, who: str, context: WorkingSet, start: int, positions: Sequence[int]) -> None:
        """Raises Irreversible for a pass at place ``start`` of which some row would see a key that was released."""
        if not context.gone:
            return
        least = min(positions) - self.window
        for one in context.gone:
            # Of what lies before the pass the last key is the first that a row comes to see.
            last = min(start, one.end) - 1
            if last >= one.first and last + one.moved > least:
                raise Irreversible(
                    f"{who} goes back to position {min(positions)} of a context whose keys up to position {last + one.moved} "
                    f"were released: every layer sees {self.window} tokens, and those were behind all windows. Go back by no "
                    f"more than {self.pool.page_size} tokens, or fork the context before it goes on"
                )

    def release(self, context: WorkingSet, works: Callable[[], Iterable[Work]]) -> int:
        """Give back the pages that no row of the context can see any more, neither its next one nor one of the ``works`` that
        are waiting. How many. Rows on the device may still see them: whatever takes the pages comes after those."""
        size = self.pool.page_size
        if not self.window or not context.plain or context.retired:
            return 0
        reached = self._end(len(context.history))
        if reached <= max((one.end for one in context.gone), default=0):
            return 0
        for work in works():
            if work.context is context:
                # A snapshot is to have all that is there now.
                rows = work.placement.positions[work.done :] if work.action is None else (0,)
                reached = min(reached, self._end(min(rows, default=len(context.history))))
        taken = [
            entry for entry in context.entries[: reached // size] if entry.page != UNMAPPED or entry.parked is not None
        ]
        if not taken:
            return 0
        self.pool.give_back(taken)
        context.gone = [Gone(0, reached), *part_after(context.gone, reached)]
        return len(taken)

    def _end(self, position: int) -> int:
        """The place before which nothing is seen from ``position`` on, in whole pages, with the margin."""
        size = self.pool.page_size
        return max(position - self.window + 1 - size, 0) // size * size
