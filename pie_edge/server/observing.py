"""Watches requests go by: the ASGI layer around the app, and the one around the Service. Neither changes what passes through, but
for the header ``x-request-id``."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.datastructures import MutableHeaders

from pie_edge.errors import PieError
from pie_edge.server.exchange import QUIET, Exchange, Listener, current, request_id
from pie_edge.server.generation import (
    Began,
    CallArguments,
    CallBegan,
    Card,
    Conversation,
    Counted,
    Event,
    Piece,
    Request,
    Service,
    Text,
    Thought,
    Usage,
)

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from pie_edge.server.metrics import HttpMetrics


LEFT = 499
"""In place of a status, for a client that went away before its answer was whole: nginx's word for it."""


class Observing:
    """ASGI: makes an Exchange of each HTTP request, and tells the listeners when it has ended, however it did."""

    def __init__(self, app: ASGIApp, metrics: HttpMetrics, listeners: Sequence[Listener] = ()) -> None:
        self._app = app
        self._metrics = metrics
        self._listeners = (metrics, *listeners)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = _headers(scope, b"x-request-id", b"traceparent")
        exchange = Exchange(request_id(headers[b"x-request-id"]), scope["method"], "", headers[b"traceparent"])
        # From here on it has this id, whatever the client's was.
        named = [pair for pair in scope["headers"] if pair[0] != b"x-request-id"]
        scope["headers"] = [*named, (b"x-request-id", exchange.id.encode())]
        answer = _Answer(exchange, receive, send)
        token = current.set(exchange)
        # Whoever looks at the figures is none of them.
        counted = scope["path"] not in QUIET
        self._metrics.active(int(counted))
        try:
            await self._app(scope, answer.receive, answer.send)
            answer.ended()
        finally:
            current.reset(token)
            self._metrics.active(-int(counted))
            exchange.ended = time.perf_counter()
            # Without an answer there was an exception of ours, which the server answers with 500.
            exchange.status = LEFT if answer.left else exchange.status or 500
            exchange.path = _route(scope)
            for listener in self._listeners:
                listener.ended(exchange)


class _Answer:
    """What passes to and from the client of one exchange. ``left``: it went away before it had its answer whole."""

    def __init__(self, exchange: Exchange, receive: Receive, send: Send) -> None:
        self.left = False
        self._whole = False
        self._exchange = exchange
        self._receive = receive
        self._send = send

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._exchange.status = message["status"]
            MutableHeaders(scope=message)["x-request-id"] = self._exchange.id
        # Noted before it goes: a server says that the client is gone after the answer, too.
        last = message["type"] == "http.response.body" and not message.get("more_body", False)
        self._whole |= last and not self.left
        await self._send(message)

    async def receive(self) -> Message:
        message = await self._receive()
        self.left |= message["type"] == "http.disconnect" and not self._whole
        return message

    def ended(self) -> None:
        """The app is done, without an exception: it leaves an answer that isn't whole for want of a client alone, one that
        sends or reads nothing for too long included."""
        self.left |= not self._whole


def _headers(scope: Scope, *names: bytes) -> dict[bytes, str]:
    found = dict.fromkeys(names, "")
    found.update((name, value.decode("latin-1")) for name, value in scope["headers"] if name in found)
    return found


def _route(scope: Mapping[str, Any]) -> str:
    """The path with its parameters' names: paths that clients make up would be endless."""
    if "endpoint" not in scope:
        return "other"
    path = f"{scope['path']}/"
    for name, value in scope.get("path_params", {}).items():
        before, found, after = path.rpartition(f"/{value}/")
        path = f"{before}/{{{name}}}/{after}" if found else path
    return path[:-1]


class Observed:
    """A Service whose generations are noted in the request that they answer."""

    def __init__(self, service: Service, metrics: HttpMetrics) -> None:
        self._service = service
        self._metrics = metrics

    @property
    def card(self) -> Card:
        return self._service.card

    async def generate(self, request: Request) -> AsyncGenerator[Event, None]:
        exchange = current.get()
        noted = _Noted()
        async with aclosing(self._service.generate(request)) as events:
            try:
                async for event in events:
                    if exchange is not None:
                        self._note(exchange, event, noted)
                    yield event
            except PieError as error:
                _failed(error)
                raise

    async def count(self, prompt: Conversation | Text) -> int:
        return await self._service.count(prompt)

    async def forget(self, name: str) -> None:
        await self._service.forget(name)

    async def embed(
        self, texts: Sequence[str | Sequence[int]], dimensions: int | None = None
    ) -> tuple[list[Sequence[float]], int]:
        try:
            vectors, tokens = await self._service.embed(texts, dimensions)
        except PieError as error:
            _failed(error)
            raise
        if (exchange := current.get()) is not None:
            exchange.model, exchange.prompt = self.card.name, tokens
        return vectors, tokens

    def _note(self, exchange: Exchange, event: Event, noted: _Noted) -> None:
        now = time.perf_counter()
        match event:
            case Began():
                exchange.started, exchange.model = exchange.started or now, self.card.name
                noted.count(exchange, event.prompt, event.cached, 0)
            case Piece() | Thought() | CallBegan() | CallArguments():
                exchange.first, exchange.last = exchange.first or now, now
                if event.choice in noted.answers:
                    self._metrics.interval(now - noted.answers[event.choice])
                noted.answers[event.choice] = now
            case Counted():
                noted.count(exchange, noted.prompt, noted.cached, event.generated)
            case Usage():
                noted.count(exchange, event.prompt, event.cached, event.generated)


@dataclass(slots=True)
class _Noted:
    """Of one generation, of which a request may have several: its tokens so far, and when each choice last got one."""

    prompt: int = 0
    cached: int = 0
    generated: int = 0
    answers: dict[int, float] = field(default_factory=dict)

    def count(self, exchange: Exchange, prompt: int, cached: int, generated: int) -> None:
        """It has so many by now, and the exchange those that are new."""
        exchange.prompt += prompt - self.prompt
        exchange.cached += cached - self.cached
        exchange.generated += generated - self.generated
        self.prompt, self.cached, self.generated = prompt, cached, generated


def _failed(error: PieError) -> None:
    if (exchange := current.get()) is not None:
        exchange.code = getattr(error, "cause", None) or error.code
