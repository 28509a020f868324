"""A client that goes away before its answer is whole: no fault of the server's, and told as what it is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pie_edge.config import ServeSettings
from pie_edge.server import logs
from pie_edge.server.app import build
from pie_edge.server.exchange import Exchange
from pie_edge.server.generation import Began, Conversation, Counted, Event, Piece, Request, Usage
from pie_edge.server.metrics import HttpMetrics
from pie_edge.server.observing import Observed, Observing
from tests.server.host_service import model_service
from tests.server.openai_serving import scripted
from tests.server.watched import CARD, Scripted
from tests.support import scripted as model

__all__ = ["scripted"]

CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}
CONTENT = {"parts": [{"text": "hi"}]}
GENERATED: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": {"model": "tiny", "prompt": "hi"},
    "/v1/responses": {"model": "tiny", "input": "hi"},
    "/v1/messages": {**CHAT, "max_tokens": 9},
    "/v1beta/models/tiny:generateContent": {"contents": [CONTENT]},
}
STREAMED: dict[str, dict[str, Any]] = {
    **{path: {**body, "stream": True} for path, body in GENERATED.items() if "beta" not in path},
    "/v1beta/models/tiny:streamGenerateContent": {"contents": [CONTENT]},
}
EMBEDDED: dict[str, dict[str, Any]] = {
    "/v1/embeddings": {"model": "tiny", "input": "hi"},
    "/v1beta/models/tiny:embedContent": {"content": CONTENT},
}


class Stuck(Scripted):
    """Says a little, and never more; or, ``queued``, nothing."""

    card = replace(CARD, embeds=True, hidden=4)

    def __init__(self, queued: bool) -> None:
        super().__init__()
        self.queued = queued
        self.stuck = asyncio.Event()

    async def generate(self, request: Request) -> AsyncGenerator[Event, None]:
        if not self.queued:
            yield Began(prompt=12, cached=8)
            yield Piece(0, "Hel")
            yield Counted(5)
        await self._stop()

    async def embed(
        self, texts: Sequence[str | Sequence[int]], dimensions: int | None = None
    ) -> tuple[list[Sequence[float]], int]:
        await self._stop()
        raise AssertionError("it never goes on")

    async def _stop(self) -> None:
        self.stuck.set()
        await asyncio.get_running_loop().create_future()


class Kept:
    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []

    def ended(self, exchange: Exchange) -> None:
        self.exchanges.append(exchange)


async def abandoned(path: str, body: dict[str, Any], queued: bool = False) -> tuple[Exchange, HttpMetrics]:
    """The request, whose client leaves once the service has said what it will."""
    service, metrics, kept = Stuck(queued), HttpMetrics(), Kept()
    app = Observing(build(Observed(service, metrics), ServeSettings(), []).asgi, metrics, [kept])
    whole = json.dumps(body).encode()
    incoming = [{"type": "http.request", "body": whole, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if incoming:
            return incoming.pop()
        await service.stuck.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None: ...

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
    more = {"headers": headers, "http_version": "1.1", "asgi": {"version": "3.0"}, "scheme": "http", "client": None}
    async with asyncio.timeout(10):
        await app({**scope, **more}, receive, send)
    (exchange,) = kept.exchanges
    return exchange, metrics


@pytest.mark.parametrize(("path", "body"), [*GENERATED.items(), *STREAMED.items()])
def test_one_that_left_is_told_as_499_with_the_tokens_made_by_then(path: str, body: dict[str, Any]) -> None:
    exchange, metrics = asyncio.run(abandoned(path, body))
    assert (exchange.status, exchange.prompt, exchange.cached, exchange.generated) == (499, 12, 8, 5)
    labels = {"method": "POST", "path": exchange.path, "status": "499"}
    assert metrics.registry.get_sample_value("pie_edge_http_requests_total", labels) == 1


@pytest.mark.parametrize(("path", "body"), [*GENERATED.items(), *STREAMED.items(), *EMBEDDED.items()])
def test_one_that_left_while_it_waited_is_told_as_499(path: str, body: dict[str, Any]) -> None:
    exchange, _ = asyncio.run(abandoned(path, body, queued=True))
    assert (exchange.status, exchange.generated) == (499, 0)


def test_the_log_says_so() -> None:
    exchange, _ = asyncio.run(abandoned("/v1/messages", GENERATED["/v1/messages"]))
    assert "POST /v1/messages 499 in" in logs._sentence(exchange)
    assert "12 tokens (8 cached), 5 generated" in logs._sentence(exchange)


def test_tokens_are_counted_while_they_are_made(scripted: tuple[model.Scripted, Path]) -> None:
    async def body() -> list[Event]:
        prompt = Conversation([{"role": "user", "content": "hello"}])
        async with model_service(scripted[1]) as (service, _):
            return [event async for event in service.generate(Request(prompt))]

    events = asyncio.run(body())
    counts = [event.generated for event in events if isinstance(event, Counted)]
    used = events[-1]
    assert isinstance(used, Usage) and counts == sorted(counts) and counts[-1] == used.generated
    assert len(counts) > 3
