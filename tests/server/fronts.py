"""Whole servers on loopback, in processes of their own, and clients that speak HTTP over plain sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pie_edge.config import load
from pie_edge.server.serve import Serving, serving
from tests.server.engines import TINY
from tests.support.scripted import Scripted

SCRIPTS = {"long": [f"w{number} " for number in range(200)], "short": ["yes", "."]}


def write_model(folder: Path) -> Path:
    """A model that answers ``[long]`` with 200 words and ``[short]`` with two."""
    return Scripted(SCRIPTS).write(folder / "scripted")


@asynccontextmanager
async def front(model: Path | str, command: Any = None, **settings: Any) -> AsyncIterator[Serving]:
    """Ready, but for the models of the tiny engine, which load as long as they like."""
    flags = {"model": str(model), "backend": "cpu", "serve.port": 0, "serve.drain": 5.0}
    flags |= {name.replace("__", "."): value for name, value in settings.items()}
    options = {} if command is None else {"command": command}
    async with serving(load(flags, {}).settings, **options) as server:
        running = asyncio.create_task(server.run())
        if command is None:
            await server.supervisor.ready()
        try:
            yield server
        finally:
            server.stop()
            server.stop()
            await asyncio.gather(running, return_exceptions=True)


def tiny_front(model: str = "tiny", **settings: Any) -> Any:
    return front(model, TINY, **settings)


@dataclass(frozen=True, slots=True)
class Answered:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@asynccontextmanager
async def asking(
    url: str, method: str, path: str, body: bytes = b"", **headers: str
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A request that was sent; its answer isn't read."""
    host, port = url.removeprefix("http://").rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port), limit=2**22)
    named = {"host": f"{host}:{port}", "content-length": str(len(body)), "connection": "close"}
    named |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    writer.write(f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + body)
    try:
        yield reader, writer
    finally:
        writer.close()


async def ask(url: str, method: str, path: str, body: bytes = b"", **headers: str) -> Answered:
    async with asking(url, method, path, body, **headers) as (reader, _):
        return await answer(reader)


async def answer(reader: asyncio.StreamReader) -> Answered:
    data = await asyncio.wait_for(reader.read(-1), 100)
    head, _, rest = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        rest = unchunked(rest)
    return Answered(int(first.split()[1]), headers, rest)


def unchunked(data: bytes) -> bytes:
    parts = []
    while data:
        size, _, data = data.partition(b"\r\n")
        length = int(size, 16)
        parts.append(data[:length])
        data = data[length + 2 :]
    return b"".join(parts)


def chat(content: str, *, model: str = "scripted", **more: Any) -> bytes:
    """The body of a chat completion."""
    return json.dumps(
        {"model": model, "messages": [{"role": "user", "content": content}], "temperature": 0, **more}
    ).encode()


CHAT = "/v1/chat/completions"


def text_of(stream: bytes) -> str:
    """The text of a stream of chat completion chunks; it must be whole."""
    events = [line.removeprefix(b"data: ") for line in stream.split(b"\n\n") if line]
    assert events[-1] == b"[DONE]", events[-1]
    deltas = [choice["delta"] for event in events[:-1] for choice in json.loads(event)["choices"]]
    return "".join(delta.get("content") or "" for delta in deltas)
