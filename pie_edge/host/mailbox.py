"""What goes between an inferlet and the client that started it: messages and files both ways, signals to the inferlet."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from pie_edge.errors import InferletError, ResourceError, UsageError

if TYPE_CHECKING:
    from pie_edge.host.limits import Limits

T = TypeVar("T")
_REST = 2**16
"""Characters that a client may have unread without ``drain`` waiting: as much as asyncio's own streams let wait."""
_MOST_SIGNALS = 1000
_LONGEST_NAME = 255


@dataclass(frozen=True, slots=True)
class File:
    name: str
    data: bytes

    def __len__(self) -> int:
        return len(self.data)


Item = str | File
Deliver = Callable[[Item], bool]
"""Takes what an inferlet sent, or says False: not now."""


class Inbox(Generic[T]):
    """To the inferlet: what its client sent and it hasn't taken. ``most`` is what ``size`` may come to in all of it."""

    def __init__(self, name: str, most: int, unit: str, size: Callable[[T], int], client_gone: bool) -> None:
        self._name = name
        self._most = most
        self._unit = unit
        self._what = unit.rpartition(" of ")[2]
        self._size = size
        self._client_gone = client_gone
        self._ended = False
        self._unread = 0
        self._arrived: deque[T] = deque()
        self._waiting: deque[asyncio.Future[T]] = deque()

    def post(self, item: T) -> None:
        """Raises ResourceError if too much is unread, InferletError if the inferlet has ended."""
        if self._ended:
            raise InferletError(f"{self._name} has ended and receives no more {self._what}")
        waiting = _first_waiting(self._waiting)
        if waiting is not None:
            waiting.set_result(item)
            return
        if self._unread + self._size(item) > self._most:
            raise ResourceError(
                f"{self._name} has {self._unread:,} {self._unit} unread, the most is {self._most:,}; "
                "wait for it to read before sending more"
            )
        self._unread += self._size(item)
        self._arrived.append(item)

    def next(self) -> asyncio.Future[T]:
        """ResourceError if there is nothing, and no client that could send something."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if self._arrived:
            item = self._arrived.popleft()
            self._unread -= self._size(item)
            future.set_result(item)
        elif self._client_gone:
            future.set_exception(self._nobody())
        else:
            self._waiting.append(future)
        return future

    def hang_up(self) -> None:
        """Nobody will send any more."""
        self._client_gone = True
        while (waiting := _first_waiting(self._waiting)) is not None:
            waiting.set_exception(self._nobody())

    def end(self) -> None:
        self._ended = True

    def _nobody(self) -> ResourceError:
        return ResourceError(f"{self._name}: no client is there that could send a {self._what.removesuffix('s')}")


class Outbox:
    """To the client: what the inferlet sent and nobody has read. One reader takes them, or has them delivered."""

    def __init__(self, name: str, most_unread: int) -> None:
        self._name = name
        self._most_unread = most_unread
        self._items: deque[Item] = deque()
        self._unread = 0
        self._readers: deque[asyncio.Future[Item | None]] = deque()
        self._draining: list[asyncio.Future[None]] = []
        self._deliver: Deliver | None = None
        self._ended = False

    @property
    def full(self) -> bool:
        return self._unread > _REST

    @property
    def empty(self) -> bool:
        return not self._items

    def put(self, item: Item) -> None:
        """Raises ResourceError if too much is unread."""
        reader = _first_waiting(self._readers)
        if reader is not None:
            reader.set_result(item)
            return
        if self._deliver is not None and not self._items and self._deliver(item):
            return
        # One that is longer than all that may be unread goes alone.
        if self._unread and self._unread + len(item) > self._most_unread:
            raise ResourceError(
                f"{self._name}: the client has {self._unread:,} characters of messages unread, the most is "
                f"{self._most_unread:,}; wait for it to read before sending more (`await session.drain()`)"
            )
        self._unread += len(item)
        self._items.append(item)

    async def take(self) -> Item | None:
        """The next one; None when the inferlet has ended and everything was taken."""
        if self._items:
            return self._pop()
        if self._ended:
            return None
        future: asyncio.Future[Item | None] = asyncio.get_running_loop().create_future()
        self._readers.append(future)
        try:
            return await future
        except asyncio.CancelledError:
            missed = future.result() if future.done() and not future.cancelled() else None
            if missed is not None:
                self._items.appendleft(missed)
                self._unread += len(missed)
            raise

    def deliver_to(self, deliver: Deliver | None) -> None:
        """From now on ``deliver`` gets what is sent, what is unread first; None leaves it here again."""
        self._deliver = deliver
        self.resume()

    def resume(self) -> None:
        """``deliver`` may take more now."""
        while self._items and self._deliver is not None and self._deliver(self._items[0]):
            self._pop()

    def drained(self) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.full:
            self._draining.append(future)
        else:
            future.set_result(None)
        return future

    def clear(self) -> None:
        """Nobody reads it."""
        self._items.clear()
        self._unread = 0
        self._tell_drained()

    def end(self) -> None:
        """The inferlet has ended: readers get the rest, and then None."""
        self._ended = True
        while (reader := _first_waiting(self._readers)) is not None:
            reader.set_result(None)

    def _pop(self) -> Item:
        item = self._items.popleft()
        self._unread -= len(item)
        self._tell_drained()
        return item

    def _tell_drained(self) -> None:
        if self._draining and not self.full:
            draining, self._draining = self._draining, []
            for future in draining:
                if not future.done():
                    future.set_result(None)


class Mailbox:
    """With a ``sink`` there is no client: it gets the messages that the inferlet sends, and nothing is ever received."""

    def __init__(self, name: str, limits: Limits, sink: Callable[[str], None] | None = None) -> None:
        self._name = name
        self._limits = limits
        self._sink = sink
        self._client_gone = sink is not None
        self._parts: dict[str, list[bytes]] = {}
        self.takes_files = False
        """Whether the client does. In-process callers and parents don't."""
        gone = self._client_gone
        self.messages: Inbox[str] = Inbox(name, limits.unread, "characters of messages", len, gone)
        self.files: Inbox[File] = Inbox(name, limits.file, "bytes of files", len, gone)
        self.signals: Inbox[str] = Inbox(name, _MOST_SIGNALS, "signals", lambda _: 1, gone)
        self.outbox = Outbox(name, limits.unread)

    # The inferlet's side.

    def send(self, text: str) -> None:
        """To the client. Raises ResourceError if it is too long or too much is unread."""
        self._check(text)
        if self._sink is not None:
            self._sink(text)
        if not self._client_gone:
            self.outbox.put(text)

    def send_file(self, name: str, part: bytes, last: bool) -> None:
        """A part of a file to the client. Raises ResourceError as ``send``, UsageError for a name that is none."""
        if not self.takes_files:
            raise ResourceError(f"{self._name}: whoever started this takes no files; send text, or run it on a server")
        check_file_name(name)
        parts = self._parts.setdefault(name, [])
        if sum(map(len, self._all_parts())) + len(part) > self._limits.file:
            del self._parts[name]
            raise ResourceError(f"{self._name}: {name!r} has more than {self._limits.file:,} bytes; send less")
        parts.append(part)
        if last:
            del self._parts[name]
            if not self._client_gone:
                self.outbox.put(File(name, b"".join(parts)))

    @property
    def full(self) -> bool:
        return self.outbox.full

    def drained(self) -> asyncio.Future[None]:
        """Done when the client has read all but a rest."""
        return self.outbox.drained()

    # The client's side.

    def post(self, text: str) -> None:
        """To the inferlet. Raises ResourceError if it is too long or too much is unread, InferletError if the inferlet has
        ended."""
        self._check(text)
        self.messages.post(text)

    def hang_up(self) -> None:
        """The client has gone: nobody reads, and nobody will send."""
        self._client_gone = True
        self.outbox.deliver_to(None)
        self.outbox.clear()
        for inbox in (self.messages, self.files, self.signals):
            inbox.hang_up()

    def end(self) -> None:
        """The inferlet has ended."""
        self.outbox.end()
        for inbox in (self.messages, self.files, self.signals):
            inbox.end()

    def _all_parts(self) -> Iterator[bytes]:
        return (part for parts in self._parts.values() for part in parts)

    def _check(self, text: str) -> None:
        if len(text) > self._limits.message:
            raise ResourceError(
                f"{self._name}: a message of {len(text):,} characters; the most is {self._limits.message:,}. "
                "Send it in parts"
            )


def check_file_name(name: str) -> None:
    """A file's name is one, and no path. Raises UsageError."""
    if (
        not 0 < len(name) <= _LONGEST_NAME
        or not name.isprintable()
        or "/" in name
        or "\\" in name
        or name in (".", "..")
    ):
        raise UsageError(
            f"{name[:80]!r} is no name of a file; give 1 to {_LONGEST_NAME} printable characters without slashes"
        )


def _first_waiting(waiting: deque[asyncio.Future[T]]) -> asyncio.Future[T] | None:
    while waiting:
        future = waiting.popleft()
        if not future.done():
            return future
    return None
