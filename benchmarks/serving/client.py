"""A client of OpenAI's API that only looks at the clock: as little work as there can be beside the server it measures."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

LONGEST_LINE = 1 << 24
PATIENCE = 600.0
"""Seconds that an answer may take."""


@dataclass
class Answer:
    """``tokens`` are when each event with text came. All times are seconds from when the request was to be sent."""

    sent: float = 0.0
    """How late it was sent."""
    tokens: list[float] = field(default_factory=list)
    ended: float = 0.0
    count: int = 0
    """Tokens, as the server counts them."""
    text: str = ""
    error: str = ""

    @property
    def first(self) -> float | None:
        return self.tokens[0] if self.tokens else None

    @property
    def gaps(self) -> list[float]:
        return [after - before for before, after in zip(self.tokens, self.tokens[1:], strict=False)]


class Client:
    """``path`` is below the server's ``url``."""

    def __init__(self, url: str, key: str = "") -> None:
        parts = urlsplit(url)
        self.url = url
        self._host, self._port = str(parts.hostname), parts.port or 80
        self._key = f"Authorization: Bearer {key}\r\n" if key else ""

    async def get(self, path: str) -> str:
        """Raises OSError, ValueError for another status than 200."""
        async with aclosing(self._pieces("GET", path, b"")) as pieces:
            return b"".join([piece async for piece in pieces]).decode()

    async def stream(self, path: str, body: Mapping[str, Any], due: float | None = None) -> Answer:
        """A streamed answer; errors are in it. ``due`` is when the request was to be sent, by ``time.perf_counter``."""
        answer, due = Answer(), time.perf_counter() if due is None else due
        whole = {**body, "stream": True, "stream_options": {"include_usage": True}}
        answer.sent = time.perf_counter() - due
        try:
            async with (
                asyncio.timeout(PATIENCE),
                aclosing(self._pieces("POST", path, json.dumps(whole).encode())) as pieces,
            ):
                await _read_events(pieces, answer, due)
        except (OSError, EOFError, ValueError, TimeoutError) as error:
            answer.error = str(error) or type(error).__name__
        answer.ended = time.perf_counter() - due
        answer.count = answer.count or len(answer.tokens)
        return answer

    async def _pieces(self, method: str, path: str, body: bytes) -> AsyncGenerator[bytes, None]:
        reader, writer = await asyncio.open_connection(self._host, self._port, limit=LONGEST_LINE)
        try:
            head = f"{method} {path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n{self._key}Connection: close\r\n"
            writer.write(f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
            pieces = _chunks(reader) if "transfer-encoding: chunked" in lines else _rest(reader)
            if " 200" not in lines[0]:
                told = b"".join([piece async for piece in pieces])
                raise ValueError(f"{lines[0].partition(' ')[2]}: {told.decode(errors='replace')[:300]}")
            async for piece in pieces:
                yield piece
        finally:
            writer.close()


async def _chunks(reader: asyncio.StreamReader) -> AsyncGenerator[bytes, None]:
    while size := int(await reader.readuntil(b"\r\n"), 16):
        yield (await reader.readexactly(size + 2))[:-2]


async def _rest(reader: asyncio.StreamReader) -> AsyncGenerator[bytes, None]:
    while piece := await reader.read(1 << 16):
        yield piece


async def _read_events(pieces: AsyncGenerator[bytes, None], answer: Answer, due: float) -> None:
    rest = b""
    async for piece in pieces:
        now = time.perf_counter() - due
        *events, rest = (rest + piece).split(b"\n\n")
        for event in events:
            data = event.strip().removeprefix(b"data:").strip()
            if data and data != b"[DONE]" and not event.startswith(b":"):
                _take(json.loads(data), answer, now)


def _take(event: Mapping[str, Any], answer: Answer, now: float) -> None:
    if "error" in event:
        raise ValueError(str(event["error"]))
    for choice in event.get("choices", ()):
        delta = choice.get("delta") or {}
        text = choice.get("text") or delta.get("content") or delta.get("reasoning_content") or ""
        if text:
            answer.tokens.append(now)
            answer.text += text
    if usage := event.get("usage"):
        answer.count = usage["completion_tokens"]
