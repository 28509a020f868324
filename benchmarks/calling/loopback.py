"""JSON over HTTP on this machine's loopback: no more of a server and of a client than a measured request needs.

Connections are kept open, and nothing of HTTP is there that the two don't use, so neither side waits for a library.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

Handler = Callable[[dict[str, Any]], Awaitable[Any]]
"""Gets what was posted, and gives the answer; both have a JSON form."""
LONGEST_LINES = 1 << 20


class AnswerError(Exception):
    """A request wasn't answered with success; the text is what the server said."""


@contextlib.asynccontextmanager
async def serving(handlers: Mapping[str, Handler]) -> AsyncIterator[str]:
    """Answers POST requests by path; the value is the server's URL, without a slash at its end."""
    open_now: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_now.add(task)
        try:
            while await _answer_one(reader, writer, handlers):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # whoever asked has gone, or the server is to end
        finally:
            open_now.discard(task)
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, limit=LONGEST_LINES, backlog=1024)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in open_now:
            task.cancel()
        await asyncio.gather(*open_now, return_exceptions=True)
        await server.wait_closed()


async def _answer_one(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handlers: Mapping[str, Handler]
) -> bool:
    """One request of a connection; whether more may follow."""
    first, headers = await _head(reader)
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    path = first.split(" ")[1]
    try:
        status, told = "200 OK", await handlers[path](json.loads(body))
    except Exception as error:
        status, told = "500 Internal Server Error", f"{path}: {type(error).__name__}: {error}"
    data = json.dumps(told).encode()
    writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
    await writer.drain()
    return headers.get("connection") != "close"


async def _head(reader: asyncio.StreamReader) -> tuple[str, dict[str, str]]:
    """The first line, and headers by name in lower case."""
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").strip().split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return first, {name.lower(): value.strip() for name, _, value in pairs}


class Client:
    """Posts to one server, over as many connections as there are requests at once."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = str(parts.hostname), parts.port
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def post(self, path: str, payload: Mapping[str, Any]) -> Any:
        """Raises AnswerError."""
        reader, writer = self._idle.pop() if self._idle else await self._connect()
        data = json.dumps(payload).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\nContent-Length: {len(data)}\r\n\r\n"
        try:
            writer.write(head.encode() + data)
            status, headers = await _head(reader)
            told = json.loads(await reader.readexactly(int(headers["content-length"])))
        except BaseException:
            writer.close()
            raise
        self._idle.append((reader, writer))
        if " 200 " not in f"{status} ":
            raise AnswerError(told)
        return told

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self._host, self._port, limit=LONGEST_LINES)

    async def close(self) -> None:
        for _, writer in self._idle:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        self._idle.clear()
