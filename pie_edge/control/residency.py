"""Which content is on the device: claims of pages for a step, and who makes room when pages run out.

The order when the pool is empty: cached prefixes nobody uses, then the pages of inferlets that wait for something else
than the engine (they are parked in host memory), last the most recently started inferlet as a whole. Pure: the engine
moves the bytes.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from pie_edge.control.pages import UNMAPPED, Copy, Entry, PagePool, WorkingSet, make_writable
from pie_edge.control.prefix import PrefixIndex
from pie_edge.control.queue import Work
from pie_edge.control.scheduler import Slice
from pie_edge.control.space import Space
from pie_edge.errors import OutOfPages


@dataclass(frozen=True, slots=True)
class Move:
    """Content that goes to or comes from host memory: the store's handle, and the page it leaves or enters."""

    handle: int
    page: int


WINDOW = 64
"""Steps over which the rate of parked content coming back is judged."""


@dataclass(slots=True)
class Pressure:
    """Counts of what pages running out has cost. ``parked`` and ``restored`` are pages.

    When as many pages came back in the last ``WINDOW`` steps as there are, contexts only push each other out: the system
    is *thrashing*, and inferlets that haven't run yet have to wait.
    """

    parked: int = 0
    restored: int = 0
    ended: int = 0
    recent: deque[int] = field(default_factory=lambda: deque(maxlen=WINDOW))

    @property
    def rate(self) -> float:
        """Pages that came back per step, lately."""
        return sum(self.recent) / max(len(self.recent), 1)


class Resident(ABC):
    """What of one pool is on the device. ``handles`` are names for content that isn't, which no two give out."""

    def __init__(self, pool: PagePool, handles: Iterator[int]) -> None:
        self.pool = pool
        self.pressure = Pressure()
        self._handles = handles

    @abstractmethod
    def of(self, context: WorkingSet) -> Iterable[Entry]:
        """The pool's entries that a context has."""

    @abstractmethod
    def own(self, entry: Entry) -> bool:
        """Whether the entry's page is there, and nobody else's."""

    @abstractmethod
    def refusal(self, space: Space) -> OutOfPages:
        """What a space is told that was ended for want of room."""

    def hold(self, entry: Entry) -> int:
        """A new handle for content of the entry that comes from elsewhere."""
        handle = next(self._handles)
        self.pool.hold_parked(entry, handle)
        return handle

    def restore(self, entries: Iterable[Entry], who: str) -> list[Move]:
        """Give parked entries pages again. Raises OutOfPages, having changed nothing."""
        wanted = list(entries)
        moves = []
        for entry, page in zip(wanted, self.pool.take(len(wanted), who), strict=True):
            assert entry.parked is not None
            moves.append(Move(entry.parked, page))
            self.pool.unpark(entry, page)
        self.pressure.restored += len(moves)
        return moves

    def take_from(self, context: WorkingSet) -> list[Move]:
        """The pages that are the context's own. Their content must be saved before anything else runs."""
        return self.take([[entry] for entry in self.of(context) if self.own(entry)])

    def take(self, shared: Iterable[Sequence[Entry]]) -> list[Move]:
        """A page from the entries that share it, one each. Their content must be saved before anything else runs."""
        moves = []
        for entries in shared:
            handle = next(self._handles)
            moves.append(Move(handle, self.pool.park(entries, handle)))
        self.pressure.parked += len(moves)
        return moves

    def newest(self, spaces: Iterable[Space]) -> Space | None:
        """The most recently started space that holds or wants pages."""
        holding = [space for space in spaces if space.waiting or any(map(self._holds, space.contexts()))]
        return max(holding, key=lambda space: space.number, default=None)

    def _holds(self, context: WorkingSet) -> bool:
        return any(map(self.own, self.of(context)))


class Residency(Resident):
    """Of KV pages."""

    def __init__(self, pool: PagePool, index: PrefixIndex, handles: Iterator[int] | None = None) -> None:
        super().__init__(pool, handles or itertools.count(1))
        self.index = index

    def of(self, context: WorkingSet) -> Iterable[Entry]:
        return context.entries

    def own(self, entry: Entry) -> bool:
        return entry.page != UNMAPPED and self.index.others(entry.page) == 1

    def refusal(self, space: Space) -> OutOfPages:
        return OutOfPages(
            f"{space.name} was ended: all {self.pool.total} KV pages of {self.pool.page_size} tokens are in use and it started "
            f"last. Run fewer inferlets at once, ask for shorter contexts, or {self.pool.growth}"
        )

    def claim(self, part: Slice) -> tuple[Copy, ...]:
        """Give the slice pages of its own to write. Raises OutOfPages, having changed nothing."""
        work, size = part.work, self.pool.page_size
        copies = make_writable(self.pool, part.writes, work.space.name, mark=work.confirmed)
        if work.context is not None and work.confirmed:
            start = work.placement.places[part.first]
            if not work.placement.at_home(part.first, part.count):
                work.context.plain = False
            work.context.record(start, work.tokens[part.first : part.first + part.count], size, work.adapter)
        return copies

    def mark(self, work: Work) -> None:
        """What a prepared pass wrote counts from now on."""
        for entry, bits in work.placement.writes(0, len(work.tokens), self.pool.page_size):
            entry.written |= bits
        context = work.context
        if context is not None:
            context.record(work.placement.places[0], work.tokens, self.pool.page_size, work.adapter)
            if context.state is not None:
                context.state.length = work.placement.places[-1] + 1

    def admitted(self, works: Sequence[Work]) -> list[Work]:
        """Those that may run: while the system thrashes, not the first passes of inferlets, unless there is nothing else."""
        if not self.pressure.restored or sum(self.pressure.recent) < self.pool.total:
            return list(works)
        return [work for work in works if work.space.usage.passes] or list(works)

    def parked(self, part: Slice) -> list[Entry]:
        """The entries of a slice whose content is in host memory."""
        if not self.pool.any_parked:
            return []
        return [entry for entry in part.table if entry.parked is not None]

    def park(self, requester: Space, spaces: Iterable[Space]) -> list[Move]:
        """Take its pages from the context that was idle longest, another inferlet's first; none if all are in use.

        Their content must be saved before anything else runs.
        """
        idle = [
            (space is requester, context.last_used, space, context)
            for space in spaces
            for context in space.contexts()
            if not context.users
            and any(map(self.own, context.entries))
            and not any(entry.users for entry in context.entries)
        ]
        if not idle:
            return []
        *_, space, context = min(idle, key=lambda found: found[:2])
        for entry in filter(self.own, context.entries):
            self.index.remove(entry.page)
        moves = self.take_from(context)
        space.usage.parked_pages += len(moves)
        return moves
