"""HTTP's side of a generation, for all providers: answers that come in pieces, and clients that go away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from pie_edge.errors import Disconnected, PieError

T = TypeVar("T")
_AT_ONCE = 16


async def begun(events: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """The same events, once there is a first one: what is refused is raised here, while there can still be a status."""
    first = await anext(events)

    async def rest() -> AsyncGenerator[T, None]:
        try:
            yield first
            async for event in events:
                yield event
        finally:
            await events.aclose()

    return rest()


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
        finally:
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


def event_stream(lines: AsyncIterator[str], failed: Callable[[PieError], str]) -> Response:
    """Server-sent events, each a text with its empty line. An error becomes what ``failed`` makes of it, and ends them."""

    async def body() -> AsyncIterator[bytes]:
        try:
            async for line in lines:
                yield line.encode()
        except PieError as error:
            yield failed(error).encode()

    return StreamingResponse(
        body(),
        media_type="text/event-stream",
        headers={"cache-control": "no-cache", "x-accel-buffering": "no"},
    )


async def attended(request: Request, work: Coroutine[object, object, T]) -> T:
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
