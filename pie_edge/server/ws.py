"""``/ws``: clients of inferlets. Each has a connection to the engine of its own, whose messages go there and back as they are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from pie_edge.errors import Disconnected, NotReady, PieError, ProtocolError
from pie_edge.protocol.codec import encode, from_server, to_server
from pie_edge.protocol.messages import Hello, Refused
from pie_edge.protocol.wire import StreamWire
from pie_edge.server.supervisor import Supervisor

_AGAIN, _WRONG, _TEXT, _RESTART = 1013, 1002, 1003, 1012
_HELLO_SECONDS = 10.0


class _TextError(ProtocolError):
    """Messages are binary."""


def route(supervisor: Callable[[], Supervisor]) -> WebSocketRoute:
    async def serve(websocket: WebSocket) -> None:
        await websocket.accept()
        try:
            hello = await _hello(websocket)
            address = supervisor().address
            wire = await supervisor().connect()
        except WebSocketDisconnect:
            return
        except PieError as error:
            await _refuse(websocket, error)
            return
        assert address is not None, "there is one where a connection could be made"
        # The engine's own secret is the server's to know.
        wire.send(encode(Hello(hello.version, hello.client, address.secret)))
        await _carry(websocket, wire)

    return WebSocketRoute("/ws", serve)


async def _hello(websocket: WebSocket) -> Hello:
    """Raises ProtocolError for another message, or none."""
    try:
        async with asyncio.timeout(_HELLO_SECONDS):
            message = to_server(await _data(websocket))
    except TimeoutError:
        raise ProtocolError(f"no hello came within {_HELLO_SECONDS:g} s") from None
    if not isinstance(message, Hello):
        raise ProtocolError(f"the first message is {type(message).__name__.lower()}; it must be hello")
    return message


async def _data(websocket: WebSocket) -> bytes:
    """Raises WebSocketDisconnect at the end, ProtocolError for text."""
    message = await websocket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", 1000))
    data = message.get("bytes")
    if data is None:
        raise _TextError("text came; messages are binary")
    return bytes(data)


async def _carry(websocket: WebSocket, wire: StreamWire) -> None:
    """Until one of the two sides ends. With the connection to the engine, what the client didn't detach ends."""
    last = b""

    async def inward() -> None:
        while True:
            wire.send(await _data(websocket))
            await wire.flush()

    async def outward() -> None:
        nonlocal last
        while True:
            for last in await wire.receive():
                await websocket.send_bytes(last)

    ways = [asyncio.create_task(inward()), asyncio.create_task(outward())]
    try:
        done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        match next(iter(done)).exception():
            case Disconnected() if _ends(last):
                await _close(websocket, _WRONG)
            case PieError() as error:
                await _refuse(websocket, error)
            case _:
                await _close(websocket, 1000)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        await wire.close()


def _ends(message: bytes) -> bool:
    """Whether the engine says in it why it ends the connection."""
    told = from_server(message) if message else None
    return isinstance(told, Refused) and told.id == 0


async def _refuse(websocket: WebSocket, error: PieError) -> None:
    """Says why, and closes."""
    with suppress(RuntimeError, WebSocketDisconnect, OSError):
        await websocket.send_bytes(encode(Refused(0, error.code, error.message)))
    match error:
        case NotReady():
            code = _AGAIN
        case Disconnected():
            code = _RESTART
        case _TextError():
            code = _TEXT
        case _:
            code = _WRONG
    await _close(websocket, code)


async def _close(websocket: WebSocket, code: int) -> None:
    with suppress(RuntimeError, WebSocketDisconnect, OSError):
        await websocket.close(code)
