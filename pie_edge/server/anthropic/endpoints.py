"""``/v1/messages`` and ``/v1/messages/count_tokens``."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pie_edge.errors import PieError
from pie_edge.server import bodies
from pie_edge.server.answering import Streamed, attended, begun, gathered, sse, with_pauses
from pie_edge.server.anthropic import translate
from pie_edge.server.anthropic.answer import Stream, message
from pie_edge.server.anthropic.errors import error_body, error_response
from pie_edge.server.anthropic.request import Body, Counted
from pie_edge.server.failures import status
from pie_edge.server.generation import Event, Service
from pie_edge.server.naming import check_model

PING_SECONDS = 10.0
"""How long a stream may be silent before it says that it lives."""

Endpoint = Callable[[Request], Awaitable[Response]]


def routes(service: Service) -> list[Route]:
    async def messages(request: Request) -> Response:
        body = await bodies.read(request, Body)
        check_model(body.model, service.card)
        events = service.generate(translate.request(body, service.card))
        if body.stream:
            coming = await attended(request.receive, begun(events))
            return Streamed(_stream(body.model, coming), "text/event-stream", {"request-id": _request_id()})
        stream = Stream(body.model)
        made = [one for event in await attended(request.receive, gathered(events)) for one in stream.push(event)]
        return JSONResponse(message(made), headers={"request-id": _request_id()})

    async def count_tokens(request: Request) -> Response:
        body = await bodies.read(request, Counted)
        check_model(body.model, service.card)
        count = await attended(request.receive, service.count(translate.prompt(body, service.card)))
        return JSONResponse({"input_tokens": count}, headers={"request-id": _request_id()})

    return [
        Route("/v1/messages", _answering(messages), methods=["POST"]),
        Route("/v1/messages/count_tokens", _answering(count_tokens), methods=["POST"]),
    ]


def _answering(endpoint: Endpoint) -> Endpoint:
    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except PieError as error:
            return error_response(status(error), error)

    return answer


async def _stream(model: str, events: AsyncGenerator[Event, None]) -> AsyncGenerator[bytes, None]:
    stream = Stream(model)
    try:
        async with aclosing(with_pauses(events, PING_SECONDS)) as coming:
            async for event in coming:
                for one in ({"type": "ping"},) if event is None else stream.push(event):
                    yield sse(json.dumps(one, ensure_ascii=False), one["type"])
    except PieError as error:
        failed = error_body(status(error), error, _request_id())
        yield sse(json.dumps(failed, ensure_ascii=False), "error")


def _request_id() -> str:
    return f"req_{secrets.token_hex(12)}"
