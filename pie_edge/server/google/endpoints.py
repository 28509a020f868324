"""``/v1beta/models`` and the methods of a model: ``generateContent``, ``streamGenerateContent``, ``countTokens``,
``embedContent``, ``batchEmbedContents``.

``/v1`` is the same API. What it lists there is OpenAI's path too: a client of Google's says so by the header ``x-goog-api-key``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pie_edge.errors import ModelNotFound, PieError, UsageError
from pie_edge.server import streams, wire
from pie_edge.server.failures import failure
from pie_edge.server.generation import Event, Service
from pie_edge.server.google import embedding, translate
from pie_edge.server.google.answer import Chunk, Stream, whole
from pie_edge.server.google.errors import error_body, error_response
from pie_edge.server.google.models import PAGING, QUERY, model_response, models_response
from pie_edge.server.google.request import Body, CountBody
from pie_edge.server.naming import check_model
from pie_edge.server.refusals import answering, check_query, read

_METHODS = ("generateContent", "streamGenerateContent", "countTokens", "embedContent", "batchEmbedContents")
_QUERY = {**QUERY, "alt": ("json", "sse"), "$alt": ("json", "sse")}


def routes(service: Service) -> list[Route]:
    async def call(request: Request) -> Response:
        name, _, method = request.path_params["call"].rpartition(":")
        as_events = _as_sse(request)
        check_model(name, service.card)
        if as_events and method in _METHODS and method != "streamGenerateContent":
            raise UsageError(f"alt=sse is for streamGenerateContent; {method} answers with JSON: leave it out")
        match method:
            case "generateContent":
                return await _generate(request, service)
            case "streamGenerateContent":
                return await _stream(request, service, as_events)
            case "countTokens":
                return await _count(request, service)
            case "embedContent":
                return await embedding.one(request, service)
            case "batchEmbedContents":
                return await embedding.several(request, service)
        raise ModelNotFound(f"{name} has no method {method!r}; it has {', '.join(_METHODS)}")

    async def one(request: Request) -> Response:
        check_query(request, QUERY)
        return model_response(service.card, request.path_params["name"])

    async def all_of_them(request: Request) -> Response:
        PAGING.check(request, QUERY)
        return models_response(service.card)

    return [
        Route("/v1beta/models", answering(all_of_them, error_response), methods=["GET"]),
        Route("/v1beta/models/{name:path}", answering(one, error_response), methods=["GET"]),
        Route("/v1beta/models/{call:path}", answering(call, error_response), methods=["POST"]),
        Route("/v1/models/{call:path}", answering(call, error_response), methods=["POST"]),
    ]


def _as_sse(request: Request) -> bool:
    """Whether the answer is asked for as events. Raises UsageError for what would change the answer, and doesn't here."""
    check_query(request, _QUERY)
    return request.query_params.get("alt", request.query_params.get("$alt")) == "sse"


async def _body(request: Request, service: Service) -> Body:
    body = await read(Body, request)
    if body.model is not None:
        check_model(body.model.removeprefix("models/"), service.card)
    return body


async def _generate(request: Request, service: Service) -> Response:
    body = await _body(request, service)
    stream = Stream(service.card.name, translate.shows_thoughts(body))
    chunks = _chunks(stream, service.generate(translate.request(body, service.card)))
    return wire.json_response(await streams.whole(request, chunks, _whole))


async def _stream(request: Request, service: Service, as_events: bool) -> Response:
    body = await _body(request, service)
    stream = Stream(service.card.name, translate.shows_thoughts(body))
    form = _Events() if as_events else _List()
    events = service.generate(translate.request(body, service.card))
    return await streams.streamed(
        request, events, lambda begun: form.texts(_chunks(stream, begun)), form.failed, form.media_type
    )


async def _count(request: Request, service: Service) -> Response:
    body = await read(CountBody, request)
    inner = body.generate_content_request
    if (inner is None) == (body.contents is None):
        raise UsageError("the body has either contents or a generateContentRequest")
    asked = inner if inner is not None else Body(contents=body.contents or [])
    if asked.model is not None:
        check_model(asked.model.removeprefix("models/"), service.card)
    count = await streams.attended(request, service.count(translate.prompt(asked, service.card)))
    return wire.json_response(
        {"totalTokens": count, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": count}]}
    )


async def _chunks(stream: Stream, events: AsyncGenerator[Event, None]) -> AsyncGenerator[Chunk, None]:
    async with aclosing(events):
        async for event in events:
            for chunk in stream.push(event):
                yield chunk


async def _whole(chunks: AsyncGenerator[Chunk, None]) -> Chunk:
    return whole([chunk async for chunk in chunks])


class _Events:
    media_type = streams.EVENTS

    async def texts(self, chunks: AsyncGenerator[Chunk, None]) -> AsyncGenerator[str, None]:
        async with aclosing(chunks):
            async for chunk in chunks:
                yield wire.event(chunk)

    def failed(self, error: PieError) -> str:
        return wire.event(_failed(error))


class _List:
    """An error in the midst of the chunks is the last of them."""

    media_type = "application/json"

    def __init__(self) -> None:
        self._before = "["

    async def texts(self, chunks: AsyncGenerator[Chunk, None]) -> AsyncGenerator[str, None]:
        async with aclosing(chunks):
            async for chunk in chunks:
                text = wire.text(chunk)
                yield self._before + text
                self._before = ",\n"
        yield "]"

    def failed(self, error: PieError) -> str:
        return f"{self._before}{wire.text(_failed(error))}]"


def _failed(error: PieError) -> Chunk:
    return error_body(failure(error).status, error)
