"""A context's keys and values on their way out of the cache and into it, as bytes in the device's own layout."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pie_edge.control.cells import known
from pie_edge.control.gone import Gone, part_of
from pie_edge.control.pages import Entry, PagePool, WorkingSet, span_bits
from pie_edge.control.queue import Placement, Work
from pie_edge.control.recurrence import State
from pie_edge.control.space import Request, Space
from pie_edge.errors import InvalidHandle


@dataclass(frozen=True, slots=True)
class Content:
    """The first ``length`` tokens of a context: a piece of bytes for each page, with the bits of those that are hidden.

    ``history`` is the tokens themselves, empty where they aren't known to have made the keys. Pages whose keys are all ``gone``,
    being behind every layer's window, are zeros.
    """

    length: int
    pages: tuple[bytes, ...]
    hidden: tuple[int, ...]
    history: tuple[int, ...]
    state: Recurrent | None = None
    """What there is beside pages, where the model has it and a token was forwarded."""
    gone: tuple[Gone, ...] = ()


@dataclass(frozen=True, slots=True)
class Recurrent:
    """A context's recurrent state: the head's, after ``end`` tokens, and the folded one's, after ``base``; empty if there is no
    such. How many of the tokens count is the content's ``length``."""

    end: int
    base: int
    head: bytes
    folded: bytes


@dataclass(frozen=True, slots=True)
class PageState:
    """A part of a page's bytes: its share of a state of ``shape``, whose first axis is the pages; or of a slot's.

    ``dtype`` is f16, f32 or u32.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def page_bytes(self) -> int:
        return math.prod(self.shape[1:]) * (2 if self.dtype == "f16" else 4)


class PageContents(Protocol):
    def read(self, entries: Sequence[Entry]) -> asyncio.Task[list[bytes]]: ...

    def put(self, entry: Entry, content: bytes) -> None: ...

    @property
    def page_states(self) -> tuple[PageState, ...]: ...


class Cache(Protocol):
    """The engine, as far as it is needed here."""

    pool: PagePool

    @property
    def contents(self) -> PageContents: ...

    @property
    def slot_contents(self) -> PageContents | None: ...

    def enqueue(self, space: Space, request: Request) -> Work: ...

    def changed(self, context: WorkingSet) -> None: ...


def save(cache: Cache, space: Space, working_set: int, length: int) -> Coroutine[Any, Any, Content]:
    """What the context holds after the passes that were submitted before. What is wrong with the call is raised at once, or
    when its turn comes: InvalidHandle for tokens that no pass has written."""
    context, size = space.find(working_set), cache.pool.page_size
    if not 0 <= length <= context.capacity(size):
        raise InvalidHandle(
            f"{space.name} saves {length} tokens of a working set that has room for {context.capacity(size)}"
        )
    entries = tuple(context.entries[: -(-length // size)])
    whole = [span_bits(index, 0, length, size) for index in range(len(entries))]
    read: list[Callable[[], Awaitable[Content]]] = []

    async def start() -> None:
        gone = part_of(context.gone, 0, length)
        wanted = [bits & ~_gone_bits(gone, index, size) for index, bits in enumerate(whole)]
        for index, (entry, bits) in enumerate(zip(entries, wanted, strict=True)):
            missing = bits & ~entry.written
            if missing:
                place = index * size + (missing & -missing).bit_length() - 1
                raise InvalidHandle(f"{space.name} saves token {place} of a working set, which no pass has written")
        # Adapters are numbered by this process alone.
        complete = context.plain and not context.adapter and len(context.history) >= length
        history = known(context.history[:length]) if complete else None
        hidden = tuple(entry.hidden & bits for entry, bits in zip(entries, wanted, strict=True))
        if context.state is not None and length:
            context.state.check(length, space.name, "saves a context up to token")
        there = [index for index, bits in enumerate(wanted) if bits]
        reading = cache.contents.read([entries[index] for index in there])
        state = _read_state(cache, context.state if length else None)

        async def gather() -> Content:
            pages = [bytes(sum(state.page_bytes for state in cache.contents.page_states))] * len(entries)
            for index, content in zip(there, await reading, strict=True):
                pages[index] = content
            return Content(length, tuple(pages), hidden, tuple(history or ()), await state(), tuple(gone))

        read.append(gather)

    placement = Placement(entries, (), ())
    turn = cache.enqueue(space, Request(id(context), (), (), placement, context, None, (), action=start)).future

    async def finish() -> Content:
        await turn
        return await read[0]()

    return finish()


def _read_state(cache: Cache, state: State | None) -> Callable[[], Awaitable[Recurrent | None]]:
    """Start reading it, as it is after the steps so far."""
    contents = cache.slot_contents
    slots = None if state is None or contents is None else contents.read([e for e in state.entries if e.written])
    end, base = (0, 0) if state is None else (state.end, state.base)

    async def read() -> Recurrent | None:
        if slots is None:
            return None
        head, *folded = await slots
        return Recurrent(end, base, head, folded[0] if folded else b"")

    return read


def _gone_bits(gone: Sequence[Gone], index: int, size: int) -> int:
    found = 0
    for one in gone:
        found |= span_bits(index, one.first, one.end, size)
    return found


def load(cache: Cache, space: Space, working_set: int, content: Content) -> None:
    """Fill an empty context. Its pages come to the device with its first pass, as those do that were swapped out.

    Raises InvalidHandle for a context that isn't empty or is in use, ContextOverflow, OutOfPages.
    """
    context, size = space.find(working_set), cache.pool.page_size
    if context.pending or any(entry.written for entry in context.entries):
        raise InvalidHandle(f"{space.name} loads a snapshot into a working set that isn't empty; make a new one")
    space.check_context(content.length)
    cache.changed(context)
    lacking = len(content.pages) - len(context.entries)
    if lacking > 0:
        space.reserve(working_set, lacking)
    for index, (page, hidden) in enumerate(zip(content.pages, content.hidden, strict=True)):
        entry = context.entries[index]
        written = span_bits(index, 0, content.length, size) & ~_gone_bits(content.gone, index, size)
        if written:
            cache.contents.put(entry, page)
        entry.written, entry.hidden = written, hidden
    if content.state is not None and context.state is not None and cache.slot_contents is not None:
        state, saved = context.state, content.state
        state.give_back()
        for entry, kept in zip(state.entries, (saved.head, saved.folded), strict=False):
            if kept:
                cache.slot_contents.put(entry, kept)
                entry.written = 1
        state.end, state.base, state.length, state.lost = saved.end, saved.base, content.length, False
    context.history, context.keys = list(content.history), []
    context.gone = list(content.gone)
    context.plain = len(content.history) == content.length and not any(content.hidden)
