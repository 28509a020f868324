"""Calls that wait: in order within a queue, side by side across queues.

What is made anew for every pass isn't frozen, here and elsewhere: a frozen object takes six times as long to be made.
"""

from __future__ import annotations

from asyncio import Future
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pie_edge.control.cells import Cell, Token, known_part
from pie_edge.control.observation import Observation
from pie_edge.control.pages import Entry, WorkingSet
from pie_edge.sampling import Epilogue

if TYPE_CHECKING:
    from pie_edge.control.space import Space


@dataclass(slots=True)
class HostTensor:
    """A value that came back from the device: flat memory, ``dtype`` f32, i32, u32 or bool, row-major."""

    dtype: str
    shape: tuple[int, ...]
    data: memoryview


@dataclass(frozen=True, slots=True)
class OutputOf:
    """An output, by its number, of the call that was given this ``name``."""

    name: int
    number: int


@dataclass(frozen=True, slots=True)
class Next:
    """The next value of a channel. It leaves the channel unless it ``stays``."""

    channel: int
    stays: bool = False


Source = OutputOf | Next | Cell
"""A cell is a value of the host's own."""


@dataclass(slots=True)
class ForwardCall:
    """A forward pass as an inferlet asks for it: write ``tokens`` at ``start … end`` of a working set, read rows out.

    ``rows`` are indices into ``tokens`` whose logits or hidden states the epilogue sees; ``parameters`` are its inputs, as
    bytes in their own dtype, in the order of the wire form. ``positions`` default to the places ``start … end``; a
    ``mask`` is a whole number for each token, whose bit i says that the token may see place i. What is ``observed`` comes as
    one more result after the epilogue's: masses, f32 [observed rows, pages up to ``end``].

    ``embeds`` are tokens that an earlier call computes, spliced in before that many of ``tokens``; ``fetches`` such values in
    place of parameters, by number. ``puts`` are ``(output, channel)`` each. ``name`` is what later calls name it by. An
    ``adapter`` is one that the model was loaded with.
    """

    working_set: int
    tokens: tuple[int, ...]
    start: int
    end: int
    rows: tuple[int, ...] = ()
    epilogue: str | None = None
    parameters: tuple[bytes, ...] = ()
    positions: tuple[int, ...] | None = None
    mask: tuple[int, ...] | None = None
    observed: Observation | None = None
    embeds: tuple[tuple[int, Source], ...] = ()
    fetches: tuple[tuple[int, Source], ...] = ()
    puts: tuple[tuple[int, int], ...] = ()
    name: int | None = None
    adapter: str | None = None


@dataclass(slots=True)
class Placement:
    """Where a pass reads and writes: a page table, and the place (entry · page size + offset) of each row's key.

    ``reach`` limits what may be seen of each entry, beside what is written and not hidden: ``None`` is all that lies
    before the last row's place.
    """

    entries: tuple[Entry, ...]
    places: tuple[int, ...]
    positions: tuple[int, ...]
    reach: tuple[int, ...] | None = None

    def at_home(self, first: int, count: int) -> bool:
        """Whether the positions of rows ``first … first + count`` are their places."""
        rows = slice(first, first + count)
        return self.positions is self.places or self.positions[rows] == self.places[rows]

    def fresh(self, first: int, count: int, page_size: int) -> dict[int, int]:
        """Which entries, by index, rows ``first … first + count`` write, with the bits."""
        bits: dict[int, int] = {}
        for place in self.places[first : first + count]:
            index, offset = divmod(place, page_size)
            bits[index] = bits.get(index, 0) | 1 << offset
        return bits

    def writes(self, first: int, count: int, page_size: int) -> list[tuple[Entry, int]]:
        """The same, by entry."""
        return [(self.entries[index], bits) for index, bits in self.fresh(first, count, page_size).items()]

    def table(self, end: int, page_size: int) -> tuple[Entry, ...]:
        """The entries a slice needs whose last row's place is before ``end``."""
        return self.entries if self.reach is not None else self.entries[: -(-end // page_size)]

    def seen(self, table: tuple[Entry, ...], end: int, page_size: int) -> list[int]:
        """The bits that may be seen of each entry of ``table``, which is that of ``end``."""
        # A context may have thousands of entries, and this runs in every step: no call for each of them.
        if self.reach is not None:
            return [entry.written & ~entry.hidden & reach for entry, reach in zip(table, self.reach, strict=True)]
        bits = [entry.written & ~entry.hidden for entry in table]
        bits[-1] &= (1 << end - (len(table) - 1) * page_size) - 1
        return bits


@dataclass(slots=True, eq=False)
class Work:
    """A call on its way: what it asks, for whom, and how many of its rows are done or under way.

    ``adopted`` of the ``done`` rows were found in the prefix index, None before it was asked; ``flying`` is how many steps on
    the device have some of them: the device works in order, so a prompt's next rows may follow before the last ones have
    landed. An ``action`` is done in place of a pass when its turn comes. A pass that run-ahead prepared isn't ``confirmed`` until
    somebody asks for it. ``cells`` are the outputs, by number, that later passes may take; ``sources`` are those of
    earlier ones among its own tokens and parameters.
    """

    space: Space
    queue: Hashable
    tokens: tuple[Token, ...]
    rows: tuple[int, ...]
    placement: Placement
    context: WorkingSet | None
    epilogue: Epilogue | None
    parameters: tuple[bytes | Cell, ...]
    future: Future[tuple[HostTensor, ...]]
    arrival: int
    action: Callable[[], Awaitable[None]] | None = None
    mask: tuple[int, ...] | None = None
    observed: Observation | None = None
    adapter: int = 0
    """Counted from 1; 0 is none."""
    sources: tuple[Cell, ...] = ()
    cells: dict[int, Cell] = field(default_factory=dict)
    confirmed: bool = True
    predictable: bool = True
    """Whether the pass after it could be told: not where the host gives it a value that follows from what is sampled."""
    done: int = 0
    adopted: int | None = None
    flying: int = 0
    using: bool = True
    ended: bool = False
    asked: float = 0.0
    """When somebody asked for it, as ``time.perf_counter`` has it, as long as none of its rows were on the device; else 0."""

    @property
    def seed(self) -> int:
        """What its draws derive from."""
        own = None if self.context is None else self.context.seed
        return self.space.seed if own is None else own

    @property
    def draw_key(self) -> tuple[int, int]:
        """The low and high word of the seed."""
        seed = self.seed
        return seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF

    @property
    def logit_rows(self) -> tuple[int, ...]:
        """The rows whose logits are read out; reading hidden states alone needs none."""
        return self.rows if self.epilogue is None or self.epilogue.reads_logits else ()

    @property
    def hidden_rows(self) -> tuple[int, ...]:
        """The rows whose hidden states are read out."""
        return self.rows if self.epilogue is not None and self.epilogue.reads_hidden else ()

    @property
    def runnable(self) -> bool:
        """Whether something of it is left to be done."""
        return self.action is not None or self.remaining > 0

    @property
    def ready(self) -> bool:
        """Whether all that it takes of others is on the device by now, or here."""
        return not self.sources or all(cell.ready for cell in self.sources)

    def settle(self) -> None:
        """All that it takes is known: from now on it is given."""
        self.tokens = tuple(known_part(self.tokens))
        self.parameters = tuple(one.value or b"" if isinstance(one, Cell) else one for one in self.parameters)
        self.sources = ()

    def launch(self, count: int) -> None:
        """The next ``count`` rows are in a step on the device."""
        self.done += count
        self.flying += 1

    @property
    def remaining(self) -> int:
        return len(self.tokens) - self.done

    @property
    def unsplittable_from(self) -> int:
        """Rows from here on must share the last step: an epilogue sees all of its rows at once, and so does who observes."""
        return unsplittable_from(self.tokens, self.rows, self.observed)

    def end(self, count: int) -> int:
        """The place after the last of the next ``count`` rows."""
        return max(self.placement.places[self.done : self.done + count]) + 1


def unsplittable_from(tokens: tuple[Token, ...], rows: tuple[int, ...], observed: Observation | None) -> int:
    """The first row that is read out or observed, or else the last one."""
    return min(rows if observed is None else (*rows, *observed.rows), default=len(tokens) - 1)


class Queues:
    """Only a queue's head may run, and behind passes over one context that are on the device the next one: the device works
    in order. Heads come by priority, then in order of arrival."""

    def __init__(self) -> None:
        self._queues: dict[Hashable, deque[Work]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def __iter__(self) -> Iterator[Work]:
        for queue in self._queues.values():
            yield from queue

    def push(self, work: Work) -> None:
        self._queues.setdefault(work.queue, deque()).append(work)

    def waiting(self) -> list[Work]:
        """Those that may run now, in no order."""
        found = []
        for queue in self._queues.values():
            work = queue[0] if queue[0].runnable else _behind(queue)
            if work is not None and work.ready:
                found.append(work)
        return found

    def is_followed(self, work: Work) -> bool:
        """Whether something waits behind it in its queue."""
        queue = self._queues.get(work.queue)
        return queue is not None and queue[-1] is not work

    def heads(self) -> list[Work]:
        """Those that may run now, as they deserve it."""
        return sorted(self.waiting(), key=lambda work: (-work.space.priority_of(work.queue), work.arrival))

    def finish(self, work: Work) -> None:
        """Take a work out, wherever it stands in its queue."""
        queue = self._queues.get(work.queue)
        if queue is None:
            return
        if queue[0] is work:
            queue.popleft()
        elif work in queue:
            queue.remove(work)
        if not queue:
            del self._queues[work.queue]


def _behind(queue: Sequence[Work]) -> Work | None:
    """The next pass of a context whose first ones are on the device, if there is one."""
    if len(queue) == 1:
        return None
    for work in queue:
        if work.context is None or work.action is not None:
            return None
        if work.runnable:
            return work
    return None
