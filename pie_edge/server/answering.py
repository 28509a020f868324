"""Answers over HTTP, whole or as they come. A client that leaves ends the work for it at once, wherever that is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.responses import Response

from pie_edge.errors import Disconnected

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

T = TypeVar("T")


async def attended(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """What the work gives. Raises Disconnected, once it is cancelled, if the client leaves before. The body was read before."""
    working, leaving = asyncio.create_task(work), asyncio.create_task(_left(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Disconnected("the client left before its answer")
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def begun(events: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """The same events, once there is the first: what is refused is known by then, and can be answered by a status."""
    first = await anext(events)

    async def all_of_them() -> AsyncGenerator[T, None]:
        async with aclosing(events):
            yield first
            async for event in events:
                yield event

    return all_of_them()


async def gathered(events: AsyncGenerator[T, None]) -> list[T]:
    async with aclosing(events):
        return [event async for event in events]


async def with_pauses(events: AsyncGenerator[T, None], seconds: float) -> AsyncGenerator[T | None, None]:
    """The events, and None whenever none has come for so long."""
    async with aclosing(events):
        coming = asyncio.ensure_future(anext(events))
        try:
            while True:
                done, _ = await asyncio.wait({coming}, timeout=seconds)
                if not done:
                    yield None
                    continue
                try:
                    event = coming.result()
                except StopAsyncIteration:
                    return
                yield event
                coming = asyncio.ensure_future(anext(events))
        finally:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)


class Streamed(Response):
    """Sends pieces as they come. They are closed at the end, or when the client leaves."""

    def __init__(
        self, pieces: AsyncGenerator[bytes, None], media_type: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(media_type=media_type, headers={"cache-control": "no-cache", **(headers or {})})
        del self.headers["content-length"]
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._pieces):
            try:
                await attended(receive, self._send(send))
            except (Disconnected, OSError):
                return

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for piece in self._pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def sse(data: str, event: str | None = None) -> bytes:
    """One event of Server-Sent Events. JSON has no line breaks of its own."""
    name = f"event: {event}\n" if event else ""
    return f"{name}data: {data}\n\n".encode()
