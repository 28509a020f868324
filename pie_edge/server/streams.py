"""HTTP's side of a generation, for all providers: answers that come in pieces, and clients that go away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from pie_edge.errors import Disconnected, PieError
from pie_edge.server.exchange import current
from pie_edge.server.failures import expected

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

T = TypeVar("T")
R = TypeVar("R")
EVENTS = "text/event-stream"
_log = logging.getLogger(__name__)
_AT_ONCE = 16


async def whole(
    request: Request, events: AsyncGenerator[T, None], gather: Callable[[AsyncGenerator[T, None]], Awaitable[R]]
) -> R:
    """What ``gather`` makes of the events, unless the client goes away meanwhile. They are closed, however it ends."""
    async with aclosing(events):
        return await attended(request, gather(events))


async def streamed(
    request: Request,
    events: AsyncGenerator[T, None],
    write: Callable[[AsyncGenerator[T, None]], AsyncGenerator[str, None]],
    failed: Callable[[PieError], str],
    media_type: str = EVENTS,
) -> Response:
    """The texts that ``write`` makes of the events, each as soon as it is there. What is refused before the first event is raised
    here, while there can still be a status; later any exception becomes what ``failed`` makes of it, and ends the answer.

    The events are closed, however the answer is left, also before any of it was sent: a generation holds a turn and pages.
    """
    try:
        first = await attended(request, anext(events))
    except BaseException:
        await events.aclose()
        raise
    return _Streamed(events, write(_after(first, events)), failed, media_type)


async def _after(first: T, events: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    yield first
    async for event in events:
        yield event


class _Streamed(StreamingResponse):
    def __init__(
        self,
        events: AsyncGenerator[Any, None],
        texts: AsyncGenerator[str, None],
        failed: Callable[[PieError], str],
        media_type: str,
    ) -> None:
        self._events = events
        self._texts = texts
        self._failed = failed
        self._pieces = self._encoded()
        headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        super().__init__(self._pieces, media_type=media_type, headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # A generator that nobody has begun closes nothing of what it would read: hence all three, the outermost first.
        async with aclosing(self._events), aclosing(self._texts), aclosing(self._pieces):
            await super().__call__(scope, receive, send)

    async def _encoded(self) -> AsyncGenerator[bytes, None]:
        try:
            async for text in self._texts:
                yield text.encode()
        except Exception as error:
            told = expected(error)
            if told is not error:
                _log.error("an answer failed in its midst", exc_info=error)
                if (exchange := current.get()) is not None:
                    exchange.code = told.code
            yield self._failed(told).encode()


async def merged(several: Sequence[AsyncGenerator[T, None]]) -> AsyncGenerator[tuple[int, T], None]:
    """The events of all, each with the number of its generator, as they come. ``_AT_ONCE`` run side by side."""
    queue: asyncio.Queue[tuple[int, T] | None] = asyncio.Queue(maxsize=_AT_ONCE)
    turn = asyncio.Semaphore(_AT_ONCE)

    async def pump(number: int) -> None:
        async with turn, aclosing(several[number]) as events:
            async for event in events:
                await queue.put((number, event))

    async def pump_all() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(len(several)):
                    group.create_task(pump(number))
        except asyncio.CancelledError:
            raise  # whoever read has closed the events: in a full queue there would never be room
        except BaseException:
            await queue.put(None)
            raise
        await queue.put(None)

    task = asyncio.create_task(pump_all())
    try:
        while (found := await queue.get()) is not None:
            yield found
        await task
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def attended(request: Request, work: Awaitable[T]) -> T:
    """What ``work`` gives, unless the client goes away meanwhile: then it is cancelled. The body must have been read."""
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(_gone(request.receive))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise Disconnected("the client went away before its answer was whole")
        return task.result()
    finally:
        for one in (task, watch):
            one.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)


async def _gone(receive: Callable[[], Awaitable[object]]) -> None:
    while True:
        match await receive():
            case {"type": "http.disconnect"}:
                return
