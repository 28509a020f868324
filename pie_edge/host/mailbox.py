"""Messages between an inferlet and the client that started it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from pie_edge.errors import InferletError, ResourceError

T = TypeVar("T")


class Mailbox:
    """Both directions, with what hasn't been read yet. With a ``sink`` there is no client: it gets what the inferlet sends,
    and nothing is ever received."""

    def __init__(self, name: str, longest: int, most_unread: int, sink: Callable[[str], None] | None = None) -> None:
        self._name = name
        self._longest = longest
        self._most_unread = most_unread
        self._sink = sink
        self._inbound: deque[str] = deque()
        self._waiting = 0
        self._receivers: deque[asyncio.Future[str]] = deque()
        self._outbound: deque[str] = deque()
        self._unread = 0
        self._readers: deque[asyncio.Future[str | None]] = deque()
        self._client_gone = sink is not None
        self._ended = False

    # The inferlet's side.

    def send(self, text: str) -> None:
        """To the client. Raises ResourceError if it is too long or too much is unread."""
        self._check(text)
        if self._sink is not None:
            self._sink(text)
        if self._client_gone:
            return
        reader = _first_waiting(self._readers)
        if reader is not None:
            reader.set_result(text)
            return
        if self._unread + len(text) > self._most_unread:
            raise ResourceError(
                f"{self._name}: the client has {self._unread:,} characters of messages unread, the most is "
                f"{self._most_unread:,}; wait for it to read before sending more"
            )
        self._unread += len(text)
        self._outbound.append(text)

    def receive(self) -> asyncio.Future[str]:
        """The client's next message. ResourceError if there is none and no client that could send one."""
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        if self._inbound:
            text = self._inbound.popleft()
            self._waiting -= len(text)
            future.set_result(text)
        elif self._client_gone:
            future.set_exception(self._nobody())
        else:
            self._receivers.append(future)
        return future

    # The client's side.

    def post(self, text: str) -> None:
        """To the inferlet. Raises ResourceError if it is too long or too much is unread, InferletError if the inferlet has
        ended."""
        if self._ended:
            raise InferletError(f"{self._name} has ended and receives no more messages")
        self._check(text)
        receiver = _first_waiting(self._receivers)
        if receiver is not None:
            receiver.set_result(text)
            return
        if self._waiting + len(text) > self._most_unread:
            raise ResourceError(
                f"{self._name} has {self._waiting:,} characters of messages unread, the most is {self._most_unread:,}; "
                "wait for it to read before sending more"
            )
        self._waiting += len(text)
        self._inbound.append(text)

    async def take(self) -> str | None:
        """The inferlet's next message; None when it has ended and everything was taken."""
        if self._outbound:
            text = self._outbound.popleft()
            self._unread -= len(text)
            return text
        if self._ended:
            return None
        future: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._readers.append(future)
        try:
            return await future
        except asyncio.CancelledError:
            missed = future.result() if future.done() and not future.cancelled() else None
            if missed is not None:
                self._outbound.appendleft(missed)
                self._unread += len(missed)
            raise

    def hang_up(self) -> None:
        """The client has gone: nobody reads, and nobody will send."""
        self._client_gone = True
        self._outbound.clear()
        self._unread = 0
        while (receiver := _first_waiting(self._receivers)) is not None:
            receiver.set_exception(self._nobody())

    def end(self) -> None:
        """The inferlet has ended."""
        self._ended = True
        while (reader := _first_waiting(self._readers)) is not None:
            reader.set_result(None)

    def _check(self, text: str) -> None:
        if len(text) > self._longest:
            raise ResourceError(
                f"{self._name}: a message of {len(text):,} characters; the most is {self._longest:,}. Send it in parts"
            )

    def _nobody(self) -> ResourceError:
        return ResourceError(f"{self._name}: no client is there that could send a message")


def _first_waiting(waiting: deque[asyncio.Future[T]]) -> asyncio.Future[T] | None:
    while waiting:
        future = waiting.popleft()
        if not future.done():
            return future
    return None
