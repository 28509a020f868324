"""Engines in processes of their own, with the tiny model, and connections to them."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from pie_edge.config import load
from pie_edge.protocol.connection import Connection, Event, Remote
from pie_edge.protocol.messages import Ended, State
from pie_edge.protocol.wire import StreamWire
from pie_edge.server.supervisor import Supervisor

T = TypeVar("T")
TINY = (sys.executable, "-m", "tests.server.tiny_engine")


@asynccontextmanager
async def engine(states: list[State] | None = None, **settings: Any) -> AsyncIterator[Supervisor]:
    """Ready. ``settings`` are by name, with ``__`` for a table's dot."""
    flags = {"model": "tiny", **{name.replace("__", "."): value for name, value in settings.items()}}
    hear = (lambda state: None) if states is None else states.append
    supervisor = Supervisor(load(flags, {}).settings, hear, TINY)
    try:
        await supervisor.ready()
        yield supervisor
    finally:
        await supervisor.close()


def with_engine(body: Callable[[Supervisor], Awaitable[T]], **settings: Any) -> T:
    async def inside() -> T:
        async with engine(**settings) as supervisor:
            return await body(supervisor)

    return asyncio.run(inside())


@asynccontextmanager
async def connected(supervisor: Supervisor) -> AsyncIterator[Connection]:
    """A connection of one's own."""
    assert supervisor.address is not None
    wire = await StreamWire.connect(supervisor.address)
    connection = await Connection.open(wire, "test", supervisor.address.secret)
    try:
        yield connection
    finally:
        await connection.close()


class Watched:
    """An inferlet, and all that came of it."""

    def __init__(self, connection: Connection, window: int = 2**16) -> None:
        self.events: list[Any] = []
        self.over: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        self.over.add_done_callback(lambda over: over.cancelled() or over.exception())
        self.changed = asyncio.Event()
        self.remote = Remote(connection, window, self._take, self.over.set_exception)

    def _take(self, event: Event) -> None:
        if isinstance(event, Ended):
            self.over.set_result(event)
        else:
            self.events.append(event)
        self.changed.set()

    async def until(self, count: int) -> None:
        while len(self.events) < count:
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), 20)

    @property
    def texts(self) -> list[str]:
        return [event.text for event in self.events]


async def launched(connection: Connection, source: str, input: Any = None, window: int = 2**16, **more: Any) -> Watched:
    watched = Watched(connection, window)
    await connection.launch(watched.remote, json.dumps(input or {}), source=source, **more)
    return watched


async def held(supervisor: Supervisor) -> dict[str, int]:
    return dict(json.loads(await supervisor.connection.ask("held")))


async def settled(supervisor: Supervisor, seconds: float = 1.0) -> None:
    """Within so long no inferlet has anything."""
    end = asyncio.get_running_loop().time() + seconds
    while (found := await held(supervisor))["pages"] or found["spaces"] or found["inferlets"]:
        assert asyncio.get_running_loop().time() < end, found
        await asyncio.sleep(0.02)
