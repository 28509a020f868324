"""``/v1/messages`` and ``/v1/messages/count_tokens``."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pie_edge.errors import PieError
from pie_edge.server import streams, wire
from pie_edge.server.anthropic import translate
from pie_edge.server.anthropic.answer import Stream, message
from pie_edge.server.anthropic.errors import error_body, error_response, request_id
from pie_edge.server.anthropic.models import QUERY
from pie_edge.server.anthropic.request import TAGS, Body, Counted
from pie_edge.server.failures import failure
from pie_edge.server.generation import Event, Service
from pie_edge.server.naming import check_model
from pie_edge.server.pauses import with_pauses
from pie_edge.server.refusals import answering, check_query, read

PING_SECONDS = 10.0
"""How long a stream may be silent before it says that it lives."""


def routes(service: Service) -> list[Route]:
    async def messages(request: Request) -> Response:
        check_query(request, QUERY)
        body = await read(Body, request, TAGS)
        check_model(body.model, service.card)
        events = service.generate(translate.request(body, service.card))
        if body.stream:
            response = await streams.streamed(request, events, partial(_lines, body.model), _failed)
        else:
            response = wire.json_response(await streams.whole(request, events, partial(_whole, body.model)))
        response.headers["request-id"] = request_id()
        return response

    async def count_tokens(request: Request) -> Response:
        check_query(request, QUERY)
        body = await read(Counted, request, TAGS)
        check_model(body.model, service.card)
        count = await streams.attended(request, service.count(translate.prompt(body, service.card)))
        return wire.json_response({"input_tokens": count}, headers={"request-id": request_id()})

    return [
        Route("/v1/messages", answering(messages, error_response), methods=["POST"]),
        Route("/v1/messages/count_tokens", answering(count_tokens, error_response), methods=["POST"]),
    ]


async def _whole(model: str, events: AsyncGenerator[Event, None]) -> dict[str, Any]:
    stream = Stream(model)
    return message([one async for event in events for one in stream.push(event)])


async def _lines(model: str, events: AsyncGenerator[Event, None]) -> AsyncGenerator[str, None]:
    stream = Stream(model)
    async with aclosing(with_pauses(events, PING_SECONDS)) as coming:
        async for event in coming:
            for one in ({"type": "ping"},) if event is None else stream.push(event):
                yield wire.event(one, one["type"])


def _failed(error: PieError) -> str:
    return wire.event(error_body(failure(error).status, error), "error")
