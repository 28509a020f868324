"""An inferlet's address space: its working sets by virtual id, its seed, what it used. Nobody can name another's."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from pie_edge.control import pages
from pie_edge.control.pages import PagePool, WorkingSet
from pie_edge.control.queue import ForwardCall, HostTensor
from pie_edge.errors import ContextOverflow, InferletCancelled, InvalidHandle


@dataclass(slots=True)
class Usage:
    """What a space has used so far. Times are seconds of ``time.perf_counter``, 0 before there is one."""

    passes: int = 0
    forwarded_tokens: int = 0
    read_rows: int = 0
    first_result: float = 0.0
    last_result: float = 0.0


class Submitter(Protocol):
    """The engine, as a space needs it."""

    pool: PagePool
    context_limit: int
    vocabulary: int

    def enqueue(self, space: Space, context: WorkingSet, call: ForwardCall) -> Future[tuple[HostTensor, ...]]: ...


@dataclass(eq=False)
class Space:
    """Virtual ids count up from 1 and are never used again, so a stale one is always noticed."""

    name: str
    seed: int
    engine: Submitter
    on_close: Callable[[Space], None]
    usage: Usage = field(default_factory=Usage)
    closed: bool = False
    _sets: dict[int, WorkingSet] = field(default_factory=dict)
    _next: int = 1

    def create_working_set(self, tokens: int) -> int:
        """Room for ``tokens`` tokens, in whole pages. Raises ContextOverflow or OutOfPages."""
        self._check_open()
        if tokens < 0:
            raise InvalidHandle(f"{self.name} asked for a working set of {tokens} tokens; ask for 0 or more")
        self._check_context(tokens)
        return self._add(self._fresh(-(-tokens // self.engine.pool.page_size), WorkingSet([], [])))

    def reserve(self, working_set: int, count: int) -> None:
        """Add ``count`` pages at the end."""
        context = self._find(working_set)
        if count < 0:
            raise InvalidHandle(f"{self.name} asked to reserve {count} pages; ask for 0 or more")
        page_size = self.engine.pool.page_size
        self._check_context(context.capacity(page_size) + (count - 1) * page_size + 1 if count else 0)
        self._fresh(count, context)

    def capacity(self, working_set: int) -> int:
        """Tokens it has room for."""
        return self._find(working_set).capacity(self.engine.pool.page_size)

    def fork(self, working_set: int) -> int:
        """A copy that shares its pages until one of the two writes them."""
        return self._add(pages.fork(self.engine.pool, self._find(working_set)))

    def discard(self, working_set: int, first_page: int, count: int) -> None:
        pages.discard(self.engine.pool, self._find(working_set), first_page, count)

    def drop(self, working_set: int) -> None:
        """Give its pages back. Work that is already under way keeps them until it ends."""
        pages.retire(self.engine.pool, self._find(working_set))
        del self._sets[working_set]

    def submit(self, call: ForwardCall) -> Future[tuple[HostTensor, ...]]:
        """Enqueue a pass behind the earlier ones on its working set. Bad arguments raise at once."""
        context = self._find(call.working_set)
        self._check_call(call, context)
        return self.engine.enqueue(self, context, call)

    def close(self) -> None:
        """Release everything; passes still waiting end with InferletCancelled."""
        if self.closed:
            return
        self.closed = True
        self.on_close(self)
        for context in self._sets.values():
            pages.retire(self.engine.pool, context)
        self._sets.clear()

    def _add(self, context: WorkingSet) -> int:
        handle, self._next = self._next, self._next + 1
        self._sets[handle] = context
        return handle

    def _fresh(self, count: int, context: WorkingSet) -> WorkingSet:
        context.pages += self.engine.pool.take(count, self.name)
        context.written += [0] * count
        return context

    def _check_open(self) -> None:
        if self.closed:
            raise InferletCancelled(f"{self.name} has ended; nothing more can be asked in its name")

    def _find(self, working_set: int) -> WorkingSet:
        self._check_open()
        if working_set not in self._sets:
            raise InvalidHandle(f"{self.name} has no working set {working_set}; it was dropped or never made")
        return self._sets[working_set]

    def _check_context(self, tokens: int) -> None:
        if tokens > self.engine.context_limit:
            raise ContextOverflow(
                f"{self.name} asked for a context of {tokens} tokens; the model's limit is {self.engine.context_limit}. "
                "Shorten the prompt or ask for fewer tokens"
            )

    def _check_call(self, call: ForwardCall, context: WorkingSet) -> None:
        count, room = len(call.tokens), context.capacity(self.engine.pool.page_size)
        if count == 0:
            raise InvalidHandle(f"{self.name} submitted a pass without tokens; embed at least one")
        if call.start < 0 or call.end - call.start != count:
            raise InvalidHandle(
                f"{self.name} embedded {count} tokens for the places {call.start}…{call.end}; their numbers must be equal"
            )
        self._check_context(call.end)
        if call.end > room:
            raise ContextOverflow(
                f"{self.name} writes tokens up to {call.end}; its working set has room for {room}. Reserve more pages"
            )
        wrong = [token for token in call.tokens if not 0 <= token < self.engine.vocabulary]
        if wrong:
            raise InvalidHandle(
                f"{self.name} embedded token {wrong[0]}; the vocabulary has ids 0…{self.engine.vocabulary - 1}"
            )
        outside = [row for row in call.rows if not 0 <= row < count]
        if outside or list(call.rows) != sorted(set(call.rows)):
            raise InvalidHandle(
                f"{self.name} reads rows {list(call.rows)} of {count}; give distinct ones in rising order"
            )
