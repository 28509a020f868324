"""What carries messages: a byte stream on this machine, or whatever else has ``Wire``'s four verbs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pie_edge.errors import Disconnected
from pie_edge.protocol.framing import Splitter, framed

_PIECE = 2**16
ENGINE_ENDED = "the server's engine ended, and what was under way in it; it is started again: ask again in a moment"
"""What whoever waits for something of it is told: it is the other side of all streams."""


class Wire(Protocol):
    def send(self, message: bytes) -> None:
        """In order; what can't go yet waits in memory. Of a wire that has ended nobody hears: ``receive`` says so."""

    async def flush(self) -> None:
        """Waits until little is left in memory."""

    async def receive(self) -> Sequence[bytes]:
        """What has come, at least one message. Raises Disconnected at the end, ProtocolError for what is no message."""

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Address:
    """Of a local connection: the path of a Unix socket, or a port on loopback, where who connects has to know the secret."""

    path: str = ""
    port: int = 0
    secret: str = ""


class StreamWire:
    """To an engine's process."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._splitter = Splitter()

    @classmethod
    async def connect(cls, address: Address) -> StreamWire:
        """Raises OSError."""
        if address.path:
            return cls(*await asyncio.open_unix_connection(address.path, limit=_PIECE))
        return cls(*await asyncio.open_connection("127.0.0.1", address.port, limit=_PIECE))

    def send(self, message: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(framed(message))

    async def flush(self) -> None:
        with contextlib.suppress(OSError):
            await self._writer.drain()

    async def receive(self) -> Sequence[bytes]:
        while True:
            try:
                piece = await self._reader.read(_PIECE)
            except OSError:
                piece = b""
            if not piece:
                raise Disconnected(ENGINE_ENDED)
            if messages := list(self._splitter.feed(piece)):
                return messages

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
