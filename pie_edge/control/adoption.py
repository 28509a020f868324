"""Passes that begin alike are computed once: what the prefix index has of a pass is taken, and what another pass is just
computing of it is waited for. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pie_edge.control.cells import known_part
from pie_edge.control.pages import PagePool
from pie_edge.control.prefix import Key, PrefixIndex
from pie_edge.control.queue import Work
from pie_edge.control.scheduler import Slice


class Adoption:
    def __init__(self, pool: PagePool, index: PrefixIndex) -> None:
        self._pool = pool
        self._index = index

    def ready(self, heads: Sequence[Work], flying: Iterable[Slice]) -> list[Work]:
        """Those of the heads that may run now, in their order, with what the index has of them adopted.

        Where several come to the same page, the first one computes it: one of the ``flying`` if there is one, given in the
        order of their steps. The others are left out until it is there.
        """
        computing: dict[Key, Work] = {}
        for part in flying:
            self._page(part.work, part.first, computing)
        ready = []
        for work in heads:
            if work.adopted is None:
                self._begin(work)
            if not self._shareable(work):
                self._page(work, work.done, computing)
                ready.append(work)
                continue
            self._adopt(work)
            if self._page(work, work.done, computing) in (None, work) or not self._shareable(work):
                ready.append(work)
        return ready

    def _page(self, work: Work, row: int, computing: dict[Key, Work]) -> Work | None:
        """Who computes the page that a row of the work is on: the work itself if nobody did; None if it can't be shared."""
        if work.context is None or len(work.tokens) == 1 or work.context.adapter != work.adapter:
            return None
        more = work.tokens[work.done : work.done + self._pool.page_size]
        key = self._index.key(work.context, work.placement.places[row], more)
        return None if key is None else computing.setdefault(key, work)

    def _shareable(self, work: Work) -> bool:
        """Whether the work's next page may be another's: it comes to its begin, its tokens fill it, and none is read out."""
        size, first, context = self._pool.page_size, work.done, work.context
        if context is None or work.flying or first + size >= len(work.tokens) or first + size > self._limit(work):
            return False
        start = work.placement.places[first]
        entry = work.placement.entries[start // size]
        return (
            context.plain
            and context.adapter == work.adapter
            and start % size == 0
            and start == len(context.history)
            and work.placement.at_home(first, size)
            and not entry.written
            and entry.parked is None
        )

    def _limit(self, work: Work) -> int:
        """The rows to be read out must be computed, and at least one row is; and what isn't known can't be found."""
        limit = min(work.unsplittable_from, len(work.tokens) - 1)
        return len(known_part(work.tokens[:limit])) if work.sources else limit

    def _adopt(self, work: Work) -> None:
        """Map pages that already hold its next tokens."""
        context, size, first = work.context, self._pool.page_size, work.done
        assert context is not None
        start, tokens = work.placement.places[first], known_part(work.tokens[first : self._limit(work)])
        pages = self._index.match(context, tokens)
        entries = work.placement.entries[start // size : start // size + len(pages)]
        saved = len(pages) * size
        if not work.placement.at_home(first, saved) or any(e.written or e.parked is not None for e in entries):
            return
        self._pool.hold(pages)
        for entry, page in zip(entries, pages, strict=True):
            self._pool.release([entry.page])
            entry.page, entry.written = page, (1 << size) - 1
        context.record(start, tokens[:saved], size, work.adapter)
        work.done += saved
        work.adopted = (work.adopted or 0) + saved
        work.space.usage.cached_tokens += saved

    def _begin(self, work: Work) -> None:
        """Seen for the first time: what was there, and isn't any more, is counted."""
        work.adopted = 0
        if work.context is not None and not work.context.history:
            work.context.adapter = work.adapter
        if work.context is not None and self._shareable(work):
            forgotten = self._index.forgotten(work.context, known_part(work.tokens[: self._limit(work)]))
            work.space.usage.recomputed_tokens += forgotten * self._pool.page_size
