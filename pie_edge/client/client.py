"""A connection to a server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pie_edge import __version__
from pie_edge.client.instance import Instance, Result
from pie_edge.client.program import Program, read
from pie_edge.client.websocket import WebSocketWire
from pie_edge.errors import UsageError
from pie_edge.protocol.connection import Connection, Remote
from pie_edge.protocol.messages import Row, State, Terminate
from pie_edge.protocol.messages import Signal as _Signal

Runnable = Program | Path | str
"""A function with ``@inferlet``, a file, or the name of a program that is installed or comes with pie-edge."""


@asynccontextmanager
async def connect(url: str = "http://127.0.0.1:8642", api_key: str | None = None) -> AsyncIterator[Client]:
    """Inferlets that weren't detached end with the connection. Raises Disconnected if there is no server, Unauthorized for a
    wrong key, ProtocolError for a server of another version, NotReady while its engine is started anew."""
    wire = await WebSocketWire.open(url, api_key)
    connection = await Connection.open(wire, f"pie-edge-python {__version__}")
    try:
        yield Client(connection)
    finally:
        await connection.close()


class Client:
    """Made by ``connect``. Whatever the server refuses is raised as the error that it is there (``pie_edge.errors``)."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def server(self) -> str:
        """Its software and version."""
        return self._connection.server

    async def status(self) -> State:
        """How far the server is, its model, and the programs that it knows by name."""
        return await self._connection.status()

    async def install(self, name: str, program: Program | Path) -> None:
        """Keeps a program on the server under a name, in place of what had it, until its engine ends."""
        await self._connection.install(name, read(program))

    async def launch(
        self,
        program: Runnable,
        input: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        seed: int | None = None,
        time: float | None = None,
        memory: int | None = None,
        detached: bool = False,
    ) -> Instance:
        """Starts a program. It ends with the connection unless it is ``detached``. ``time`` is seconds, ``memory`` bytes.

        Raises UsageError, ResourceError where too many are alive, NotReady while the model loads.
        """
        instance = Instance(self._connection)
        options = {"name": name, "seed": seed, "time": time, "memory": memory, "detached": detached}
        await self._connection.launch(instance.remote, _document(input or {}), **_asked(program, options))
        return instance

    async def submit(self, program: Runnable, input: Mapping[str, Any] | None = None, **options: Any) -> str:
        """Starts a program for somebody to attach to later, by the id that this gives: nothing of what it says is lost.
        ``options`` are those of ``launch``."""
        remote = Remote(self._connection, 0, lambda event: None, lambda error: None)
        asked = _asked(program, {**options, "detached": True})
        await self._connection.launch(remote, _document(input or {}), **asked)
        self._connection.forget(remote)
        return remote.instance

    async def run(
        self,
        program: Runnable,
        input: Mapping[str, Any] | None = None,
        *,
        on_message: Callable[[str], None] = lambda text: None,
        **options: Any,
    ) -> Any:
        """What a program returns; ``on_message`` gets what it sends. ``options`` are those of ``launch``. Cancelling this ends
        the program."""
        instance = await self.launch(program, input, **options)
        try:
            async for text in instance:
                on_message(text)
            return (await instance.result()).value
        finally:
            instance.remote.terminate()

    async def attach(self, id: str) -> Instance:
        """To an inferlet that nobody is attached to: what it sent since then comes first. Raises InvalidHandle, ResourceError."""
        instance = Instance(self._connection)
        await self._connection.attach(instance.remote, id)
        return instance

    async def list(self) -> tuple[Row, ...]:
        """The inferlets that run, and those that have ended without anybody having heard how."""
        return await self._connection.instances()

    async def terminate(self, id: str) -> None:
        """Ends an inferlet. Raises InvalidHandle."""
        await self._connection.tell(Terminate, id)

    async def signal(self, id: str, name: str) -> None:
        """Sends a signal to an inferlet, which gets it from ``session.signal``. Raises InvalidHandle."""
        await self._connection.tell(_Signal, id, name)

    async def ask(self, what: str, input: Any = None) -> Any:
        """A question to the server's engine, such as ``metrics``. Raises UsageError for one that it doesn't answer."""
        return json.loads(await self._connection.ask(what, _json(input)))


def _asked(program: Runnable, options: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of ``Launch``. Raises UsageError."""
    time = options.get("time")
    if isinstance(time, int | float) and time < 0:
        raise UsageError(f"time is {time:g} s; give seconds from 0, which is what the server allows")
    named = {"program": program} if isinstance(program, str) else {"source": read(program)}
    name = options.get("name") or (program.name if isinstance(program, Program) else getattr(program, "stem", ""))
    return {**options, **named, "name": name}


def _document(input: Mapping[str, Any]) -> str:
    if not isinstance(input, Mapping):
        raise UsageError(f"the input is {type(input).__name__}; give a dict")
    return _json(dict(input))


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            f"the input has no JSON form: {error}; pass numbers, strings, booleans, None, lists and dicts"
        ) from None


__all__ = ["Client", "Result", "Runnable", "connect"]
