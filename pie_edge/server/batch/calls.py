"""How a batch's requests reach a server: one in this process, or one at an address."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
from collections.abc import MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from pie_edge.errors import Disconnected, UsageError
from pie_edge.server.batch.lines import Answer

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_HOST = "localhost"


class Call(Protocol):
    async def __call__(self, url: str, body: bytes) -> Answer:
        """Raises Disconnected if there is no answer."""


class InProcess:
    """An ASGI application, called without a port."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, url: str, body: bytes) -> Answer:
        sent: list[MutableMapping[str, Any]] = []
        asked = False

        async def receive() -> MutableMapping[str, Any]:
            nonlocal asked
            if asked:  # the client stays
                await asyncio.get_running_loop().create_future()
            asked = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        await self._app(_scope(url, len(body)), receive, send)
        begin = next(message for message in sent if message["type"] == "http.response.start")
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in begin["headers"]}
        parts = [message.get("body", b"") for message in sent if message["type"] == "http.response.body"]
        return Answer(begin["status"], headers.get("x-request-id", ""), b"".join(parts))


def _scope(path: str, length: int) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [
            (b"host", _HOST.encode()),
            (b"content-type", b"application/json"),
            (b"content-length", str(length).encode()),
        ],
        "client": None,
        "server": (_HOST, 80),
    }


class Remote:
    """A server at an address, such as ``http://127.0.0.1:8642``. A connection for each request: they take long. ``parallel`` are
    under way at once."""

    def __init__(self, address: str, api_key: str | None, parallel: int) -> None:
        """Raises UsageError for an address that is none."""
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
            raise UsageError(f"--url {address} is no server's address; it reads like http://127.0.0.1:8642")
        self._address = address
        self._connection = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._place = parts.netloc.rpartition("@")[2]
        self._threads = ThreadPoolExecutor(parallel, "batch")
        self._headers = {"content-type": "application/json"}
        if api_key:
            self._headers["authorization"] = f"Bearer {api_key}"

    async def __call__(self, url: str, body: bytes) -> Answer:
        connection = self._connection(self._place)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._answer, connection, url, body)
        except (OSError, http.client.HTTPException) as error:
            raise Disconnected(f"{self._address} gives no answer: {error or type(error).__name__}") from error
        finally:
            # If the batch was interrupted, its thread still waits on the socket, which wakes it up.
            if connection.sock is not None:
                with contextlib.suppress(OSError):
                    connection.sock.shutdown(socket.SHUT_RDWR)
                connection.close()

    def _answer(self, connection: http.client.HTTPConnection, url: str, body: bytes) -> Answer:
        connection.request("POST", url, body, self._headers)
        response = connection.getresponse()
        return Answer(response.status, response.headers.get("x-request-id", ""), response.read())
