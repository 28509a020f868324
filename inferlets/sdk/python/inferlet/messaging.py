"""Messages between the inferlets of one host, by topic."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType

from inferlet import _loop
from inferlet._host import Message, host
from inferlet._inbox import Inbox
from inferlet.errors import UsageError


def broadcast(topic: str, text: str) -> int:
    """Gives ``text`` to everybody who is subscribed to ``topic`` now, this program included if it is. How many those are."""
    loop = _loop.running()
    if loop is not None:
        loop.flush()
    return host().broadcast(topic, text)


def subscribe(topic: str) -> Subscription:
    return Subscription(topic)


class Subscription(AsyncIterator[str]):
    """The messages of a topic from now on: ``async for text in subscription``.

    One that reads too slowly misses messages: then ``receive`` raises ResourceError once, in their place, and goes on after it.
    """

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self._handle = host().subscribe(topic)
        number = self._handle.id  # alone: a subscription that nobody refers to any more ends at once
        self._inbox: Inbox[str] = Inbox(lambda: Message(number))
        self._open = True

    async def receive(self) -> str:
        """The next message. One that is cancelled loses nothing: the message goes to the next one."""
        if not self._open:
            raise UsageError(f"this subscription to {self.topic!r} was closed; make another one")
        return await self._inbox.receive()

    async def __anext__(self) -> str:
        return await self.receive()

    def close(self) -> None:
        """No more messages. Closing twice is fine."""
        if self._open:
            self._open = False
            self._handle.close()

    def __enter__(self) -> Subscription:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()
