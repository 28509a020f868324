"""An inferlet's address space: its contexts by virtual id, its seed, what it used. Nobody can name another's."""

from __future__ import annotations

import time
from asyncio import Future
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field

from pie_edge.control import pages
from pie_edge.control.carrier import HandleTable, Router, Submitter
from pie_edge.control.cells import Cell, Token
from pie_edge.control.channels import Channels
from pie_edge.control.gone import without
from pie_edge.control.observation import Observation
from pie_edge.control.pages import Entry, WorkingSet
from pie_edge.control.queue import ForwardCall, HostTensor, Placement, Work
from pie_edge.control.recurrence import State, refuse_trick
from pie_edge.control.usage import Usage
from pie_edge.errors import ContextOverflow, DeviceLost, InferletCancelled, InvalidHandle, OutOfPages, PieError
from pie_edge.program.node_types import TensorType


@dataclass(slots=True)
class Request:
    """A checked pass, as the engine takes it. ``sources`` are the cells of its tokens and parameters; ``kept`` are outputs that
    later passes may take, by number and with the type that they must have."""

    queue: Hashable
    tokens: tuple[Token, ...]
    rows: tuple[int, ...]
    placement: Placement
    context: WorkingSet | None
    epilogue: str | None
    parameters: tuple[bytes | Cell, ...]
    mask: tuple[int, ...] | None = None
    sources: tuple[Cell, ...] = ()
    kept: tuple[tuple[int, TensorType], ...] = ()
    action: Callable[[], Awaitable[None]] | None = None
    """What to do instead of a pass, when the queue has come to it."""
    observed: Observation | None = None
    adapter: int = 0
    predictable: bool = True
    """Whether the next pass may be prepared from this one."""


MAX_SHARED = 10000
"""Contexts under keys, of all spaces."""


@dataclass(eq=False)
class Space:
    """Virtual ids count up from 1 and are never used again, so a stale one is always noticed.

    ``waiting`` counts its calls that the engine hasn't answered.
    """

    name: str
    seed: int
    number: int
    engine: Submitter
    on_close: Callable[[Space, PieError], None]
    usage: Usage = field(default_factory=Usage)
    opened: float = field(default_factory=time.perf_counter)
    closed: bool = False
    waiting: int = 0
    handles: HandleTable | None = None
    """Its level 1 objects, once it has any."""
    router: Router | None = None
    """Chooses its engine, where there are several and none is chosen yet."""
    channels: Channels = field(init=False)
    _ended: PieError | None = None
    _sets: dict[int, WorkingSet] = field(default_factory=dict)
    _priorities: dict[Hashable, int] = field(default_factory=dict)
    _next: int = 1

    def __post_init__(self) -> None:
        self.channels = Channels(self.name)

    def settle(self, tokens: Sequence[Token] = (), adapter: str | None = None, home: Submitter | None = None) -> None:
        """From now on it is on one engine: on ``home``, or where it does best with these tokens. Raises InvalidHandle where it is
        on another than ``home`` already, DeviceLost where no engine is left."""
        number = self.adapter_number(adapter)
        if self.router is not None:
            router, self.router = self.router, None
            router(self, tokens, number, home)
        elif home is not None and home is not self.engine:
            raise InvalidHandle(
                f"{self.name} takes what is on {home.device_name}, and has its own pages on {self.engine.device_name}; take it "
                "before the first pass, or serve from one device"
            )

    def move(self, engine: Submitter, on_close: Callable[[Space, PieError], None]) -> None:
        """To another engine, before its first pass: so far it has pages and slots on none."""
        self.engine, self.on_close = engine, on_close
        for context in self._sets.values():
            if engine.slots is not None:
                context.state = State(engine.slots)

    def create_working_set(self, tokens: int, seed: int | None = None) -> int:
        """Room for ``tokens`` tokens, in whole pages; a page is taken when it is first written. Draws derive from ``seed``,
        by default the space's.

        Raises ContextOverflow or, for more than there could ever be, OutOfPages.
        """
        self.check_open()
        if tokens < 0:
            raise InvalidHandle(f"{self.name} asked for a working set of {tokens} tokens; ask for 0 or more")
        self.check_context(tokens)
        slots = self.engine.slots
        context = WorkingSet(seed=seed, state=None if slots is None else State(slots))
        self._grow(context, -(-tokens // self.engine.pool.page_size))
        return self.add(context)

    def reserve(self, working_set: int, count: int) -> None:
        """Add room for ``count`` pages at the end."""
        context = self.find(working_set)
        if count < 0:
            raise InvalidHandle(f"{self.name} asked to reserve {count} pages; ask for 0 or more")
        size = self.engine.pool.page_size
        self.check_context(context.capacity(size) + (count - 1) * size + 1 if count else 0)
        self._grow(context, count)

    def capacity(self, working_set: int) -> int:
        """Tokens it has room for."""
        return self.find(working_set).capacity(self.engine.pool.page_size)

    def fork(self, working_set: int, seed: int | None = None) -> int:
        """A copy that shares its pages until one of the two writes them. It draws as the original does, unless it gets a
        ``seed`` of its own."""
        return self.add(pages.fork(self.engine.pool, self.find(working_set), seed=seed))

    def slice(self, working_set: int, first_page: int, count: int, seed: int | None = None) -> int:
        """A fork of ``count`` pages from ``first_page``; its tokens keep their positions."""
        context = self.find(working_set)
        if first_page < 0 or count < 0 or first_page + count > len(context.entries):
            raise InvalidHandle(
                f"{self.name} asked for pages {first_page}…{first_page + count} of a working set of {len(context.entries)}"
            )
        if first_page:
            refuse_trick(context.state, self.name, f"cuts a context's pages from {first_page} on out of it")
        return self.add(pages.fork(self.engine.pool, context, first_page, count, seed))

    def discard(self, working_set: int, first_page: int, count: int) -> None:
        context = self.find(working_set)
        if any(entry.written for entry in context.entries[max(first_page, 0) + max(count, 0) :]):
            refuse_trick(context.state, self.name, f"discards pages {first_page}…{first_page + count} before others")
        self.engine.changed(context)
        pages.discard(self.engine.pool, context, first_page, count)

    def share(self, working_set: int, key: str, seconds: float | None = None) -> None:
        """Let every space find the context, as it is now, under a key that is free. With ``seconds`` it is lent for so long."""
        context = self.find(working_set)
        self.settle()
        shared = self.engine.shared
        if any(key in one.shared for one in self.engine.engines):
            raise InvalidHandle(f"{self.name} shares a working set as {key!r}, which is taken; remove it first")
        if len(shared) >= MAX_SHARED and not shared.make_room():
            raise InvalidHandle(
                f"{self.name} shares a working set, and there are {MAX_SHARED} shared; remove one first"
            )
        if context.pending:
            raise InvalidHandle(
                f"{self.name} shares a working set that {context.pending} passes still use; await them first"
            )
        shared.add(key, pages.fork(self.engine.pool, context), seconds)

    def adopt(self, key: str) -> int | None:
        """A copy of what is shared under a key; None where nothing is."""
        self.check_open()
        home = next((one for one in self.engine.engines if key in one.shared), None)
        if home is None:
            return None
        self.settle(home=home)
        found = home.shared.find(key)
        assert found is not None
        copy = pages.fork(self.engine.pool, found)
        copy.seed = None
        return self.add(copy)

    def unshare(self, key: str) -> bool:
        """End it; who has a copy keeps it. Whether there was anything."""
        return any(one.shared.remove(key) for one in self.engine.engines)

    def hide(self, working_set: int, start: int, hidden: tuple[bool, ...]) -> None:
        """Mask (True) or unmask the tokens from ``start`` on, for later passes of this working set alone."""
        context, size = self.find(working_set), self.engine.pool.page_size
        if start < 0 or start + len(hidden) > context.capacity(size):
            raise InvalidHandle(
                f"{self.name} masks tokens {start}…{start + len(hidden)}; its working set has room for {context.capacity(size)}"
            )
        refuse_trick(context.state, self.name, "masks tokens")
        for place, hide in enumerate(hidden, start):
            entry, bit = context.entries[place // size], 1 << place % size
            entry.hidden = entry.hidden | bit if hide else entry.hidden & ~bit
        context.plain = False
        self.engine.changed(context)

    def drop(self, working_set: int) -> None:
        """Give its pages back. Work that is already under way keeps them until it ends."""
        context = self.find(working_set)
        self.engine.changed(context)
        pages.retire(self.engine.pool, context)
        del self._sets[working_set]

    def submit(self, call: ForwardCall) -> Future[tuple[HostTensor, ...]]:
        """Enqueue a pass behind the earlier ones on its working set, and behind those whose values it takes. Bad arguments raise
        at once, and then it has taken nothing from channels and put nothing there."""
        try:
            work = self._submitted(call)
        except PieError as error:
            if call.name is not None:
                self.channels.remember(call.name, error)
            raise
        if call.name is not None:
            self.channels.remember(call.name, work)
        return work.future

    def forget(self, name: int) -> None:
        """No later call takes anything of the call that was given this name."""
        self.channels.forget(name)

    def _submitted(self, call: ForwardCall) -> Work:
        context = self.find(call.working_set)
        exchange = self.channels.exchange(call) if call.embeds or call.fetches or call.puts else None
        tokens = exchange.tokens if exchange else call.tokens
        self._check_call(call, len(tokens), context)
        if self.router is not None:
            self.settle(tokens if call.start == 0 else (), call.adapter)
        places = tuple(range(call.start, call.end))
        self.engine.behind.check(self.name, context, call.start, call.positions or places)
        request = Request(
            queue=id(context),
            tokens=tokens,
            rows=call.rows,
            placement=Placement(tuple(context.entries), places, call.positions or places),
            context=context,
            epilogue=call.epilogue,
            parameters=exchange.parameters if exchange else call.parameters,
            mask=call.mask,
            sources=tuple(exchange.sources) if exchange else (),
            kept=exchange.kept if exchange else (),
            observed=call.observed,
            adapter=self.adapter_number(call.adapter),
            predictable=not any(isinstance(source, Cell) for _, source in call.fetches),
        )
        work = self.engine.enqueue(self, request)
        if context.gone:
            context.gone = without(context.gone, call.start, call.end)
        if exchange:
            exchange.commit(work)
        if call.mask is not None:
            context.plain = False
        return work

    def set_priority(self, queue: Hashable, priority: int) -> None:
        self._priorities[queue] = priority

    def priority_of(self, queue: Hashable) -> int:
        return self._priorities.get(queue, 0)

    def contexts(self) -> Iterator[WorkingSet]:
        yield from self._sets.values()
        if self.handles is not None:
            yield WorkingSet(list(self.handles.entries()))

    def entries(self) -> Iterator[Entry]:
        """All of its page-table entries."""
        for context in self.contexts():
            yield from context.entries

    def close(self) -> None:
        """Release everything; passes still waiting end with InferletCancelled."""
        self.end(InferletCancelled(f"{self.name} ended before its pass ran"))

    def end(self, reason: PieError) -> None:
        """Release everything; passes still waiting, and whatever is asked later, end with ``reason``."""
        if self.closed:
            return
        self.closed = True
        self._ended = reason
        self.on_close(self, reason)
        for context in self._sets.values():
            pages.retire(self.engine.pool, context)
        self._sets.clear()
        self.channels.clear()
        if self.handles is not None:
            self.handles.close()
            self.handles = None  # it refers to this: a cycle

    def add(self, context: WorkingSet) -> int:
        handle, self._next = self._next, self._next + 1
        self._sets[handle] = context
        return handle

    def find(self, working_set: int) -> WorkingSet:
        self.check_open()
        if working_set not in self._sets:
            raise InvalidHandle(f"{self.name} has no working set {working_set}; it was dropped or never made")
        return self._sets[working_set]

    def _grow(self, context: WorkingSet, count: int) -> None:
        pool = self.engine.pool
        # Where pages are released a context may go on for longer than the pool is large.
        if len(context.entries) + count > pool.total and not self.engine.behind.window:
            raise OutOfPages(
                f"{self.name} asked for {len(context.entries) + count} KV pages of {pool.page_size} tokens; there are "
                f"{pool.total} in all. Ask for fewer tokens, or {pool.growth}"
            )
        context.entries += (Entry() for _ in range(count))

    def check_open(self) -> None:
        """Raises what it ended with."""
        if isinstance(self._ended, OutOfPages | DeviceLost):
            raise self._ended
        if self.closed:
            raise InferletCancelled(f"{self.name} has ended; nothing more can be asked in its name")

    def check_context(self, tokens: int) -> None:
        """Raises ContextOverflow for more tokens than the model is good for."""
        if tokens > self.engine.context_limit:
            raise ContextOverflow(
                f"{self.name} asked for a context of {tokens} tokens; the model's limit is {self.engine.context_limit}. "
                "Shorten the prompt or ask for fewer tokens; context in the configuration raises it where the model scales rope"
            )

    def _check_call(self, call: ForwardCall, count: int, context: WorkingSet) -> None:
        room = context.capacity(self.engine.pool.page_size)
        if count == 0:
            raise InvalidHandle(f"{self.name} submitted a pass without tokens; embed at least one")
        if call.start < 0 or call.end - call.start != count:
            raise InvalidHandle(
                f"{self.name} embedded {count} tokens for the places {call.start}…{call.end}; their numbers must be equal"
            )
        self.check_context(call.end)
        if call.end > room:
            raise ContextOverflow(
                f"{self.name} writes tokens up to {call.end}; its working set has room for {room}. Reserve more pages"
            )
        self.check_tokens(call.tokens)
        self.check_rows(call.rows, count)
        if call.observed is not None:
            self.check_rows(call.observed.rows, count, "observes")
        if call.positions is not None:
            if len(call.positions) != count:
                raise InvalidHandle(
                    f"{self.name} gave {len(call.positions)} positions for {count} tokens; give one for each"
                )
            self.check_positions(call.positions)
        if call.mask is not None:
            refuse_trick(context.state, self.name, "gave masks for a pass")
        if call.mask is not None and len(call.mask) != count:
            raise InvalidHandle(f"{self.name} gave masks for {len(call.mask)} of {count} tokens; give one for each")

    def adapter_number(self, name: str | None) -> int:
        """Counted from 1; 0 for none."""
        if name is None:
            return 0
        adapters = self.engine.abilities.adapters
        if name not in adapters:
            loaded = f"the model was loaded with {', '.join(adapters)}" if adapters else "there is none"
            raise InvalidHandle(
                f"{self.name} names the adapter {name!r}; {loaded}. Load it with --adapter {name or 'NAME'}=FOLDER"
            )
        return adapters.index(name) + 1

    def check_tokens(self, tokens: tuple[int, ...]) -> None:
        wrong = [token for token in tokens if not 0 <= token < self.engine.vocabulary]
        if wrong:
            raise InvalidHandle(
                f"{self.name} embedded token {wrong[0]}; the vocabulary has ids 0…{self.engine.vocabulary - 1}"
            )

    def check_rows(self, rows: tuple[int, ...], count: int, does: str = "reads") -> None:
        outside = [row for row in rows if not 0 <= row < count]
        if outside or list(rows) != sorted(set(rows)):
            raise InvalidHandle(f"{self.name} {does} rows {list(rows)} of {count}; give distinct ones in rising order")

    def check_positions(self, positions: Sequence[int]) -> None:
        limit = self.engine.context_limit
        if max(positions, default=0) >= limit:
            raise ContextOverflow(
                f"{self.name} gave position {max(positions)}; the model's limit is {limit} tokens, positions 0…{limit - 1}. Give "
                "earlier ones; context in the configuration raises it where the model scales rope"
            )
        if min(positions, default=0) < 0:
            raise InvalidHandle(f"{self.name} gave position {min(positions)}; positions start at 0")
