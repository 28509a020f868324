"""The bytes of pages on their way: copied on the device, read to host memory, and brought back."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from pie_edge.control import pages
from pie_edge.control.pages import Copy, Entry
from pie_edge.control.parking import Parking
from pie_edge.control.residency import Move, Resident
from pie_edge.control.snapshot import PageState
from pie_edge.control.store import Store
from pie_edge.errors import OutOfPages


class Contents:
    """What one ``Resident`` decides, done. The device works in order, so a read sees what was written before it was started."""

    def __init__(self, residency: Resident, parking: Parking, store: Store) -> None:
        self._pool = residency.pool
        self._residency = residency
        self._parking = parking
        self._store = store
        self._saves: dict[int, _Saved] = {}
        self._stale: list[int] = []
        self._pool.forget = self._stale.append

    @property
    def page_states(self) -> tuple[PageState, ...]:
        """What the bytes of a page are, in their order."""
        return tuple(PageState(one.name, one.dtype.value, one.shape) for one in self._store.states)

    async def copy(self, copies: Sequence[Copy]) -> None:
        """Duplicate pages on the device; then their sources may go."""
        try:
            await self._store.copy(copies)
        finally:
            self._pool.release(copy.source for copy in copies)

    async def copy_tokens(self, who: str, pairs: Sequence[tuple[Entry, int, Entry, int]]) -> None:
        """Copy keys and values: (source entry, slot, target entry, slot) each. Raises OutOfPages."""
        writes: dict[int, tuple[Entry, int]] = {}
        for _, _, target, slot in pairs:
            writes[id(target)] = target, writes.get(id(target), (target, 0))[1] | 1 << slot
        await self.copy(pages.make_writable(self._pool, writes.values(), who))
        size = self._pool.page_size
        await self._store.copy_tokens([(s.page * size + i, t.page * size + j) for s, i, t, j in pairs])

    async def restore(self, moves: Sequence[Move]) -> None:
        """Bring parked content back to the device, then let go of what nobody names any more."""
        for move in moves:
            saved = self._saves.get(move.handle)
            content = (await saved.pages)[saved.index] if saved else self._parking.get(move.handle)
            self._store.load(move.page, content)
        while self._stale:
            handle = self._stale.pop()
            if self._saves.pop(handle, None) is None:
                self._parking.drop(handle)

    def park(self, moves: Sequence[Move]) -> None:
        """Read parked pages from the device, before whatever runs next overwrites them."""
        saving = self._store.save([move.page for move in moves])
        for index, move in enumerate(moves):
            self._saves[move.handle] = _Saved(saving, index)
        saving.add_done_callback(lambda task: self._saved(moves, task))

    def _saved(self, moves: Sequence[Move], task: asyncio.Task[list[bytes]]) -> None:
        if task.cancelled() or task.exception() is not None:
            return  # whoever wants the content back hears of it
        for move, content in zip(moves, task.result(), strict=True):
            if self._saves.pop(move.handle, None) is not None:
                self._parking.put(move.handle, content)

    def read(self, entries: Sequence[Entry]) -> asyncio.Task[list[bytes]]:
        """Start reading the content of written pages, wherever it is, as it is after the steps so far."""
        saving = self._store.save([entry.page for entry in entries if entry.parked is None])
        numbers = itertools.count()
        sources = [
            _Saved(saving, next(numbers))
            if entry.parked is None
            else self._saves.get(entry.parked) or self._parking.get(entry.parked)
            for entry in entries
        ]

        async def read() -> list[bytes]:
            return [one if isinstance(one, bytes) else (await one.pages)[one.index] for one in sources]

        return asyncio.get_running_loop().create_task(read())

    def put(self, entry: Entry, content: bytes) -> None:
        """Give an unmapped page-table entry its content, as if it had been swapped out. Raises OutOfPages."""
        if self._parking.full:
            raise OutOfPages(
                "host memory has no room for a snapshot's pages: it is full with those of waiting inferlets; run fewer at once"
            )
        self._parking.put(self._residency.hold(entry), content)

    def close(self) -> None:
        self._parking.close()


@dataclass(frozen=True, slots=True)
class _Saved:
    """Content on its way to host memory."""

    pages: asyncio.Task[list[bytes]]
    index: int
