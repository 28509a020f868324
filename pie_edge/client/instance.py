"""An inferlet on a server, as its client holds it."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from pie_edge.errors import Disconnected, PieError, UsageError
from pie_edge.protocol.codec import PART
from pie_edge.protocol.connection import Connection, Event, Remote, error_of
from pie_edge.protocol.messages import Detach, Ended, FilePart, Message, Send, SendFile, Signal, Terminate
from pie_edge.protocol.messages import Output as Printed

T = TypeVar("T")
WINDOW = 2**20
"""Characters and bytes of one inferlet that may be here without having been taken; then it waits, if it does (``drain``)."""
_MOST_FILES = 64 * 2**20
_MOST_OUTPUT = 2**20


@dataclass(frozen=True, slots=True)
class Output:
    """What an inferlet printed, or with ``log`` what it logged. ``dropped`` characters before it were lost on the server: nobody
    read them in time."""

    text: str
    log: bool
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class File:
    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Result:
    """What the inferlet returned, what it used, and seconds."""

    value: Any
    usage: dict[str, int]
    timings: dict[str, float]


class _Inbox(Generic[T]):
    """What came and wasn't taken; ``taken`` is told of each that is."""

    def __init__(self, taken: Callable[[T], None]) -> None:
        self._items: deque[T] = deque()
        self._taken = taken
        self._changed = asyncio.Event()
        self._over = False

    def put(self, item: T) -> None:
        self._items.append(item)
        self._changed.set()

    def end(self) -> None:
        self._over = True
        self._changed.set()

    async def next(self) -> T | None:
        """None at the end."""
        while not self._items:
            if self._over:
                self._changed.set()
                return None
            self._changed.clear()
            await self._changed.wait()
        item = self._items.popleft()
        self._taken(item)
        return item


class _Outputs(_Inbox[Output]):
    """The oldest go where nobody takes them."""

    def __init__(self) -> None:
        super().__init__(self._forget)
        self._size = 0

    def add(self, output: Output) -> None:
        self._size += len(output.text)
        self.put(output)
        while self._size > _MOST_OUTPUT and len(self._items) > 1:
            lost, rest = self._items.popleft(), self._items.popleft()
            self._items.appendleft(replace(rest, dropped=rest.dropped + lost.dropped + len(lost.text)))
            self._size -= len(lost.text)

    def _forget(self, output: Output) -> None:
        self._size -= len(output.text)


class Instance:
    """Made by ``Client.launch`` and ``Client.attach``. As an asynchronous iterator it gives the inferlet's messages."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.remote = Remote(connection, WINDOW, self._take, self._lost)
        self._messages: _Inbox[str] = _Inbox(lambda text: self.remote.grant(len(text)))
        self._outputs = _Outputs()
        self._files: _Inbox[File] = _Inbox(self._file_taken)
        self._parts: list[bytes] = []
        self._held = 0
        self._owed = 0
        self._ending: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        self._ending.add_done_callback(lambda ending: ending.cancelled() or ending.exception())

    @property
    def id(self) -> str:
        """By which any client of the server can attach to it."""
        return self.remote.instance

    @property
    def name(self) -> str:
        return self.remote.name

    def __aiter__(self) -> AsyncIterator[str]:
        return self._all(self._messages)

    def outputs(self) -> AsyncIterator[Output]:
        """What it prints and logs, until it ends."""
        return self._all(self._outputs)

    async def receive(self) -> str | None:
        """Its next message; None when it has ended and all were taken. Raises Disconnected."""
        return self._checked(await self._messages.next())

    async def receive_file(self) -> File | None:
        """The next file that it sent; None when it has ended and all were taken. Raises Disconnected."""
        return self._checked(await self._files.next())

    async def send(self, text: str) -> None:
        """A message to it. Raises ResourceError if it has too much unread, InferletError or InvalidHandle if it has ended."""
        await self._connection.tell(Send, self.id, text)

    async def send_file(self, name: str, data: bytes) -> None:
        """A file to it, under a name that is no path. Raises as ``send``, and UsageError."""
        if not isinstance(data, bytes | bytearray | memoryview):
            raise UsageError(f"a file is bytes, and {name!r:.80} is {type(data).__name__}; encode text first")
        for start in range(0, max(len(data), 1), PART):
            last = start + PART >= len(data)
            await self._connection.tell(SendFile, self.id, name, bytes(data[start : start + PART]), last)

    async def signal(self, name: str) -> None:
        """A signal, which the inferlet gets from ``session.signal``."""
        await self._connection.tell(Signal, self.id, name)

    async def terminate(self) -> None:
        """It ends at once: ``result`` raises InferletCancelled. Does nothing if it has ended."""
        if not self._ending.done():
            await self._connection.tell(Terminate, self.id)

    async def detach(self) -> None:
        """It goes on without this client, which hears no more of it. Whoever attaches next does."""
        await self._connection.tell(Detach, self.id)
        self._lost(Disconnected(f"this client detached from {self.id}"))

    async def result(self) -> Result:
        """How it ended. Raises InferletError's kind, as in the inferlet's own process, or Disconnected. Cancelling the wait
        doesn't end it."""
        ended = await asyncio.shield(self._ending)
        if ended.result is None:
            raise error_of(ended)
        return Result(json.loads(ended.result), ended.usage, ended.timings)

    async def _all(self, inbox: _Inbox[T]) -> AsyncIterator[T]:
        while (item := self._checked(await inbox.next())) is not None:
            yield item

    def _checked(self, item: T | None) -> T | None:
        if item is None and self._ending.done() and isinstance(self._ending.exception(), Disconnected):
            raise self._ending.exception() or Disconnected("the connection has ended")
        return item

    def _take(self, event: Event) -> None:
        match event:
            case Message():
                self._messages.put(event.text)
            case Printed():
                self._outputs.add(Output(event.text, event.log, event.dropped))
                # Messages don't wait for output that nobody looks at.
                self.remote.grant(len(event.text))
            case FilePart():
                self._take_part(event)
            case Ended():
                self._end(lambda: self._ending.set_result(event))

    def _take_part(self, event: FilePart) -> None:
        """Parts are let come until the file is whole, unless whole ones wait that are as much as the longest file."""
        self._parts.append(event.part)
        self._held += len(event.part)
        if self._held <= _MOST_FILES:
            self.remote.grant(len(event.part))
        else:
            self._owed += len(event.part)
        if event.last:
            self._files.put(File(event.name, b"".join(self._parts)))
            self._parts = []

    def _file_taken(self, file: File) -> None:
        self._held -= len(file.data)
        if self._held <= _MOST_FILES and self._owed:
            owed, self._owed = self._owed, 0
            self.remote.grant(owed)

    def _lost(self, error: PieError) -> None:
        self._end(lambda: self._ending.set_exception(error))

    def _end(self, conclude: Callable[[], None]) -> None:
        if not self._ending.done():
            conclude()
        for inbox in (self._messages, self._outputs, self._files):
            inbox.end()
