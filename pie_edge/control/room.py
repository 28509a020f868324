"""Pages, and slots of recurrent state, for the slices of a step; and room for those that got none."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from pie_edge.control.calls import Calls
from pie_edge.control.contents import Contents
from pie_edge.control.pages import Copy, WorkingSet
from pie_edge.control.parking import Parking
from pie_edge.control.queue import Work
from pie_edge.control.residency import Move, Residency, Resident
from pie_edge.control.scheduler import Slice
from pie_edge.control.shared import Shared
from pie_edge.control.slots import SlotResidency
from pie_edge.control.space import Space
from pie_edge.errors import OutOfPages, PieError


@dataclass(slots=True)
class Moves:
    """What must be copied and brought back before a step may run, of one kind."""

    copies: list[Copy] = field(default_factory=list)
    restored: list[Move] = field(default_factory=list)


@dataclass(slots=True)
class Claimed:
    """What became of a step's slices: those that are ``ready``, the works that got no room, and those that can't be."""

    ready: list[Slice] = field(default_factory=list)
    refused: list[Work] = field(default_factory=list)
    failed: list[tuple[Work, PieError]] = field(default_factory=list)
    pages: Moves = field(default_factory=Moves)
    slots: Moves = field(default_factory=Moves)
    short: Resident | None = None
    """What the first one that was refused lacks."""


class Room:
    """``slots`` are those of recurrent state, where the model has such; ``shared`` are the contexts of nobody's."""

    def __init__(
        self,
        pages: Residency,
        slots: SlotResidency | None,
        contents: Mapping[Resident, Contents],
        parking: Parking,
        calls: Calls,
        spaces: Set[Space],
        shared: Shared,
    ) -> None:
        self._pages = pages
        self._slots = slots
        self._contents = contents
        self._parking = parking
        self._calls = calls
        self._spaces = spaces
        self._shared = shared

    def claim(self, slices: Sequence[Slice]) -> Claimed:
        """Room for each slice, content that comes back from host memory included; one that gets none stays queued."""
        claimed, index = Claimed(), self._pages.index
        for part in slices:
            before = index.evictions
            try:
                self._claim(part, claimed)
            except OutOfPages:
                claimed.short = claimed.short or self._pages
                claimed.refused.append(part.work)
            except PieError as error:
                claimed.failed.append((part.work, error))
            else:
                claimed.ready.append(part)
            part.work.space.usage.evicted_pages += index.evictions - before
        return claimed

    def _claim(self, part: Slice, claimed: Claimed) -> None:
        if self._slots is not None:
            if claimed.short is self._slots and not self._slots.has_all(part):
                # What is free is for the one before: else each could take what the other one needs, for ever.
                raise self._slots.refusal(part.work.space)
            try:
                claimed.slots.restored += self._slots.restored(part)
                claimed.slots.copies += self._slots.claim(part)
            except OutOfPages:
                claimed.short = claimed.short or self._slots
                raise
        if parked := self._pages.parked(part):
            restored = self._pages.restore(parked, part.work.space.name)
            part.work.space.usage.restored_pages += len(restored)
            claimed.pages.restored += restored
        claimed.pages.copies += self._pages.claim(part)
        if self._slots is not None:
            self._slots.commit(part)

    async def move(self, claimed: Claimed) -> None:
        """Do on the device what was claimed."""
        await self._contents[self._pages].copy(claimed.pages.copies)
        await self._contents[self._pages].restore(claimed.pages.restored)
        self._pages.pressure.recent.append(len(claimed.pages.restored))
        if self._slots is not None:
            await self._contents[self._slots].copy(claimed.slots.copies)
            await self._contents[self._slots].restore(claimed.slots.restored)

    def make(self, claimed: Claimed, *, busy: bool) -> bool:
        """Drop what was only foreseen, then what was lent; park an idle context; with none, and nothing running that will free
        pages, end the newest inferlet. Whether there is more room now."""
        foreseen = [work.context for work in self._calls.prepared if work.context is not None]
        for context in foreseen:
            self._calls.ahead.drop(context)
        asking = [work for work in claimed.refused if work.confirmed]
        short = claimed.short
        if foreseen or not asking or short is None:
            return bool(foreseen)
        if self._shared.make_room():
            return True
        busy |= bool(claimed.ready)
        if not self._parking.full and (moves := self._park(short, asking[0], busy)):
            self._contents[short].park(moves)
            return True
        if busy:
            return False
        newest = short.newest(self._spaces)
        if newest is None:
            return False
        short.pressure.ended += 1
        newest.end(short.refusal(newest))
        return True

    def _park(self, short: Resident, asking: Work, busy: bool) -> list[Move]:
        if short is self._slots and self._slots is not None:
            return self._slots.park(asking.context, self._owned(), busy=busy)
        return self._pages.park(asking.space, self._spaces)

    def _owned(self) -> Iterator[tuple[Space | None, WorkingSet]]:
        yield from itertools.chain(
            ((space, context) for space in self._spaces for context in space.contexts()),
            ((None, context) for context in self._shared.values()),
        )
