"""The protocol's messages over a WebSocket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

from pie_edge import errors
from pie_edge.errors import Disconnected, PieError, ProtocolError, UsageError
from pie_edge.protocol.codec import LONGEST

_OPEN_SECONDS = 10.0
_LITTLE = 2**18
"""Bytes that may wait to be sent without whoever sends more having to."""


class WebSocketWire:
    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._leaving: asyncio.Queue[bytes] = asyncio.Queue()
        self._size = 0
        self._less = asyncio.Event()
        self._sending = asyncio.create_task(self._send())

    @classmethod
    async def open(cls, url: str, api_key: str | None) -> WebSocketWire:
        """Raises Disconnected if nothing listens there, and what the server refuses by the error's code."""
        address = address_of(url)
        headers = {"authorization": f"Bearer {checked_key(api_key)}"} if api_key else {}
        options: dict[str, Any] = {}
        if urlsplit(address).hostname in ("localhost", "127.0.0.1", "::1"):
            options["proxy"] = None
        try:
            socket = await connect(
                address,
                additional_headers=headers,
                max_size=LONGEST,
                compression=None,
                open_timeout=_OPEN_SECONDS,
                **options,
            )
        except InvalidStatus as error:
            raise _refused(url, error) from None
        except (OSError, TimeoutError, InvalidHandshake, InvalidURI) as error:
            raise Disconnected(
                f"there is no server at {url} ({error or 'no answer'}); start one with `pie-edge serve`"
            ) from None
        return cls(socket)

    def send(self, message: bytes) -> None:
        self._size += len(message)
        self._leaving.put_nowait(message)

    async def flush(self) -> None:
        while self._size > _LITTLE and not self._sending.done():
            self._less.clear()
            await self._less.wait()

    async def receive(self) -> Sequence[bytes]:
        try:
            message = await self._socket.recv()
        except ConnectionClosed as error:
            raise Disconnected(f"the server closed the connection ({error})") from None
        if isinstance(message, str):
            raise ProtocolError("the server sent text; its messages are binary")
        return [message]

    async def close(self) -> None:
        if not self._sending.done() and self._size:
            # What was said last is said: a detached inferlet was launched, another one terminated.
            await asyncio.wait({asyncio.ensure_future(self._all_sent())}, timeout=1.0)
        self._sending.cancel()
        await asyncio.gather(self._sending, return_exceptions=True)
        await self._socket.close()

    async def _all_sent(self) -> None:
        while self._size and not self._sending.done():
            self._less.clear()
            await self._less.wait()

    async def _send(self) -> None:
        try:
            while True:
                message = await self._leaving.get()
                await self._socket.send(message)
                self._size -= len(message)
                self._less.set()
        except ConnectionClosed:
            pass  # ``receive`` tells
        finally:
            self._less.set()


def checked_key(key: str) -> str:
    """The same. Raises UsageError for what can't stand in a header, and isn't shown."""
    if not isinstance(key, str) or not key.isascii() or not key.isprintable() or " " in key:
        raise UsageError("the API key is none: it has other characters than printable ASCII ones without spaces")
    return key


def address_of(url: str) -> str:
    """``http://host:port`` → ``ws://host:port/ws``. Raises UsageError."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    scheme = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}.get(parts.scheme)
    if scheme is None or not parts.netloc:
        raise UsageError(f"{url!r} is no server's address; write it as http://127.0.0.1:8642")
    path = parts.path.rstrip("/")
    return f"{scheme}://{parts.netloc}{path if path.endswith('/ws') else path + '/ws'}"


def _refused(url: str, error: InvalidStatus) -> PieError:
    try:
        told = json.loads(error.response.body or b"")["error"]
        return errors.by_code(told["code"])(str(told["message"]))
    except (ValueError, KeyError, TypeError):
        return Disconnected(f"{url} answered with status {error.response.status_code}, not as a server of pie-edge")
