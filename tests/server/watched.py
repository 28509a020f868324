"""An app of one route over a scripted Service, with everything that watches over requests around it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from pie_edge.errors import PieError
from pie_edge.server.exchange import Listener
from pie_edge.server.generation import Began, Card, Conversation, Ended, Event, Piece, Request, Text, Usage
from pie_edge.server.metrics import HttpMetrics, Snapshot, route
from pie_edge.server.observing import Observed, Observing

CARD = Card("tiny", 256, 0, chat=True, embeds=False)
PIECES = ("<b>Hello", " world</b>", "!")
SECRET = "sk-very-secret"


class Scripted:
    """Answers everything with ``PIECES``, or with ``error``."""

    card = CARD

    def __init__(self, error: PieError | None = None) -> None:
        self.error = error

    async def generate(self, request: Request) -> AsyncGenerator[Event, None]:
        yield Began(prompt=12, cached=8)
        if self.error is not None:
            raise self.error
        for piece in PIECES:
            await asyncio.sleep(0.002)
            yield Piece(0, piece)
        yield Ended(0, "stop")
        yield Usage(prompt=12, cached=8, generated=3)

    async def count(self, prompt: Conversation | Text) -> int:
        return 12

    async def embed(
        self, texts: Sequence[str | Sequence[int]], dimensions: int | None = None
    ) -> tuple[list[Sequence[float]], int]:
        return [[1.0]] * len(texts), len(texts)

    async def forget(self, name: str) -> None: ...


async def _no_engine() -> Mapping[str, Any]:
    from pie_edge.errors import NotReady

    raise NotReady("tiny is loading")


def watched(service: Any, *listeners: Listener, snapshot: Snapshot = _no_engine) -> tuple[Observing, HttpMetrics]:
    """``POST /chat/{name}`` streams what the service generates; ``GET /metrics`` is there, too."""
    metrics = HttpMetrics()
    observed = Observed(service, metrics)

    async def chat(request: HttpRequest) -> Response:
        await request.body()

        async def pieces() -> AsyncGenerator[bytes, None]:
            async for event in observed.generate(Request(Text("hi"))):
                if isinstance(event, Piece):
                    yield event.text.encode()

        return StreamingResponse(pieces())

    app = Starlette(routes=[Route("/chat/{name}", chat, methods=["POST"]), route(snapshot, metrics)])
    return Observing(app, metrics, listeners), metrics


async def ask(
    app: Any, method: str, path: str, headers: Mapping[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of the answer to a request with a secret body."""
    sent: list[dict[str, Any]] = []
    incoming = [{"type": "http.request", "body": SECRET.encode(), "more_body": False}]

    async def receive() -> dict[str, Any]:
        if incoming:
            return incoming.pop()
        await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    raw = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": raw,
    }
    await app({**scope, "http_version": "1.1", "asgi": {"version": "3.0"}, "scheme": "http"}, receive, send)
    body = b"".join(message.get("body", b"") for message in sent)
    told = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], told, body
