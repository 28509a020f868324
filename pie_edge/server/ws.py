"""``/ws``: clients of inferlets. Each has a connection to the engine of its own, whose messages go there and back as they are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from pie_edge.errors import Disconnected, NotReady, PieError, ProtocolError
from pie_edge.protocol.codec import LONGEST, encode, to_server
from pie_edge.protocol.messages import Hello, Refused
from pie_edge.protocol.wire import StreamWire
from pie_edge.server.supervisor import Supervisor

_AGAIN, _WRONG = 1013, 1002
_HELLO_SECONDS = 10.0


def route(supervisor: Callable[[], Supervisor]) -> WebSocketRoute:
    async def serve(websocket: WebSocket) -> None:
        await websocket.accept()
        try:
            hello = await _hello(websocket)
            address = supervisor().address
            wire = await supervisor().connect()
        except (TimeoutError, WebSocketDisconnect):
            await _close(websocket, _WRONG)
            return
        except PieError as error:
            with suppress(RuntimeError, WebSocketDisconnect):
                await websocket.send_bytes(encode(Refused(0, error.code, error.message)))
            await _close(websocket, _AGAIN if isinstance(error, NotReady) else _WRONG)
            return
        assert address is not None, "there is one where a connection could be made"
        # The engine's own secret is the server's to know.
        wire.send(encode(Hello(hello.version, hello.client, address.secret)))
        await _carry(websocket, wire)

    return WebSocketRoute("/ws", serve)


async def _hello(websocket: WebSocket) -> Hello:
    """Raises ProtocolError for another message, TimeoutError for none."""
    async with asyncio.timeout(_HELLO_SECONDS):
        message = to_server(await _data(websocket))
    if not isinstance(message, Hello):
        raise ProtocolError(f"the first message is {type(message).__name__.lower()}; it must be hello")
    return message


async def _data(websocket: WebSocket) -> bytes:
    """Raises WebSocketDisconnect at the end, ProtocolError for text or what is too long."""
    message = await websocket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", 1000))
    data = message.get("bytes")
    if data is None or len(data) > LONGEST:
        raise ProtocolError(f"a message is binary, of at most {LONGEST:,} bytes")
    return bytes(data)


async def _carry(websocket: WebSocket, wire: StreamWire) -> None:
    """Until one of the two sides ends. With the connection to the engine, what the client didn't detach ends."""

    async def inward() -> None:
        while True:
            wire.send(await _data(websocket))
            await wire.flush()

    async def outward() -> None:
        while True:
            for message in await wire.receive():
                await websocket.send_bytes(message)

    ways = [asyncio.create_task(inward()), asyncio.create_task(outward())]
    try:
        done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        error = next(iter(done)).exception()
        code = 1011 if isinstance(error, Disconnected) else _WRONG if isinstance(error, ProtocolError) else 1000
        await _close(websocket, code)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        await wire.close()


async def _close(websocket: WebSocket, code: int) -> None:
    with suppress(RuntimeError, WebSocketDisconnect, OSError):
        await websocket.close(code)
