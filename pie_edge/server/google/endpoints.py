"""``/v1beta/models`` and the methods of a model: ``generateContent``, ``streamGenerateContent``, ``countTokens``.

``/v1`` is the same API. What it lists there is OpenAI's path too: a client of Google's says so by the header ``x-goog-api-key``.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pie_edge.errors import ModelNotFound, PieError, UsageError
from pie_edge.server import bodies
from pie_edge.server.answering import Streamed, attended, begun, gathered, sse
from pie_edge.server.failures import status
from pie_edge.server.generation import Event, Service
from pie_edge.server.google import translate
from pie_edge.server.google.answer import Chunk, Stream, whole
from pie_edge.server.google.errors import error_body, error_response
from pie_edge.server.google.models import model_response, models_response
from pie_edge.server.google.request import Body, CountBody
from pie_edge.server.naming import check_model

Endpoint = Callable[[Request], Awaitable[Response]]

_QUERY = {"alt": ("json", "sse"), "$alt": ("json", "sse"), "prettyPrint": ("true", "false")}
"""What a query may say. ``key`` is the client's key; whatever it is, it has been looked at."""


def routes(service: Service) -> list[Route]:
    async def call(request: Request) -> Response:
        name, _, method = request.path_params["call"].rpartition(":")
        query = _query(request)
        check_model(name, service.card)
        match method:
            case "generateContent":
                return await _generate(request, service)
            case "streamGenerateContent":
                return await _stream(request, service, query.get("alt", query.get("$alt")) == "sse")
            case "countTokens":
                return await _count(request, service)
        known = "generateContent, streamGenerateContent and countTokens"
        raise ModelNotFound(f"{name} has no method {method!r}; it has {known}")

    async def one(request: Request) -> Response:
        return model_response(service.card, request.path_params["name"])

    async def all_of_them(request: Request) -> Response:
        return models_response(service.card)

    return [
        Route("/v1beta/models", _answering(all_of_them), methods=["GET"]),
        Route("/v1beta/models/{name:path}", _answering(one), methods=["GET"]),
        Route("/v1beta/models/{call:path}", _answering(call), methods=["POST"]),
        Route("/v1/models/{call:path}", _answering(call), methods=["POST"]),
    ]


def _answering(endpoint: Endpoint) -> Endpoint:
    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except PieError as error:
            return error_response(status(error), error)

    return answer


def _query(request: Request) -> dict[str, str]:
    """Raises UsageError for what would change the answer, and doesn't here."""
    found = dict(request.query_params)
    found.pop("key", None)
    for name, value in found.items():
        if value not in _QUERY.get(name, ()):
            raise UsageError(f"the query has {name}={value}; it may have: alt=sse or alt=json, key, prettyPrint")
    return found


async def _body(request: Request, service: Service) -> Body:
    body = await bodies.read(request, Body)
    if body.model is not None:
        check_model(body.model.removeprefix("models/"), service.card)
    return body


async def _generate(request: Request, service: Service) -> Response:
    body = await _body(request, service)
    stream = Stream(service.card.name, translate.shows_thoughts(body))
    events = await attended(request.receive, gathered(service.generate(translate.request(body, service.card))))
    return JSONResponse(whole(chunk for event in events for chunk in stream.push(event)))


async def _stream(request: Request, service: Service, as_events: bool) -> Response:
    body = await _body(request, service)
    stream = Stream(service.card.name, translate.shows_thoughts(body))
    events = await attended(request.receive, begun(service.generate(translate.request(body, service.card))))
    chunks = _chunks(stream, events)
    if as_events:
        return Streamed(_as_events(chunks), "text/event-stream")
    return Streamed(_as_list(chunks), "application/json")


async def _count(request: Request, service: Service) -> Response:
    body = await bodies.read(request, CountBody)
    inner = body.generate_content_request
    if (inner is None) == (body.contents is None):
        raise UsageError("the body has either contents or a generateContentRequest")
    asked = inner if inner is not None else Body(contents=body.contents or [])
    if asked.model is not None:
        check_model(asked.model.removeprefix("models/"), service.card)
    count = await attended(request.receive, service.count(translate.prompt(asked, service.card)))
    return JSONResponse({"totalTokens": count, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": count}]})


async def _chunks(stream: Stream, events: AsyncGenerator[Event, None]) -> AsyncGenerator[Chunk, None]:
    """An error in their midst is the last of them."""
    try:
        async with aclosing(events):
            async for event in events:
                for chunk in stream.push(event):
                    yield chunk
    except PieError as error:
        yield error_body(status(error), error)


async def _as_events(chunks: AsyncGenerator[Chunk, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(chunks):
        async for chunk in chunks:
            yield sse(json.dumps(chunk, ensure_ascii=False))


async def _as_list(chunks: AsyncGenerator[Chunk, None]) -> AsyncGenerator[bytes, None]:
    before = "["
    async with aclosing(chunks):
        async for chunk in chunks:
            yield (before + json.dumps(chunk, ensure_ascii=False)).encode()
            before = ",\n"
    yield b"]"
