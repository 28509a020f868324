"""An HTTP server on this machine, for inferlets to ask: it answers by path, and remembers what it was asked."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit


@dataclass
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def query(self) -> dict[str, list[str]]:
        return parse_qs(urlsplit(self.path).query)


Answering = Callable[[Asked], bytes | None]
"""The whole answer as bytes; None never answers."""


@dataclass
class Tool:
    port: int = 0
    scheme: str = "http"
    asked: list[Asked] = field(default_factory=list)
    open: int = 0
    """Connections that haven't ended."""

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}/"


def answer(body: bytes | str = b"", status: str = "200 OK", **headers: str) -> bytes:
    """With its length."""
    data = body.encode() if isinstance(body, str) else body
    named = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(data)}\r\n{named}\r\n".encode() + data


def echo(asked: Asked) -> bytes | None:
    """``/echo?q=…`` gives q, ``/slow`` nothing ever, anything else 404."""
    path = urlsplit(asked.path).path
    if path == "/slow":
        return None
    if path == "/echo":
        return answer(asked.query.get("q", [asked.body.decode()])[0])
    return answer("no such page", "404 Not Found")


@asynccontextmanager
async def serving(answering: Answering = echo, tls: ssl.SSLContext | None = None) -> AsyncIterator[Tool]:
    tool = Tool(scheme="https" if tls else "http")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tool.open += 1
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            method, path, _ = head[0].split(" ")
            headers = {
                name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)
            }
            asked = Asked(method, path, headers, await reader.readexactly(int(headers.get("content-length", 0))))
            tool.asked.append(asked)
            told = answering(asked)
            if told is None:
                await reader.read()  # until the other side gives up
            else:
                writer.write(told)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            tool.open -= 1
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    tool.port = server.sockets[0].getsockname()[1]
    try:
        yield tool
    finally:
        server.close()
        await server.wait_closed()
