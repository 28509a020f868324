"""``/openapi.json``: every path of the server as an OpenAPI document, made of the models that requests are read by."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pie_edge import __version__
from pie_edge.server import wire

Whose = Literal["OpenAI", "Anthropic", "Google", "Server"]
_REFERENCE = "#/components/schemas/{model}"
_REFUSALS = {
    400: "The request can't be met as it is.",
    401: "No API key, or another one.",
    403: "A browser asks for a page of somebody else's.",
    404: "There is no such model, response or method.",
    413: "The body is too long.",
    415: "The body is compressed.",
    429: "As many requests wait as may.",
    503: "The model loads, memory is exhausted, or the server ends.",
    504: "It took too long.",
}
_TEXT: dict[str, Any] = {"type": "string"}
_ERRORS: dict[Whose, dict[str, Any]] = {
    "OpenAI": {
        "message": _TEXT,
        "type": _TEXT,
        "param": {"type": ["string", "null"]},
        "code": {"type": ["string", "null"]},
    },
    "Anthropic": {"type": _TEXT, "message": _TEXT},
    "Google": {"code": {"type": "integer"}, "message": _TEXT, "status": _TEXT},
    "Server": {"code": _TEXT, "message": _TEXT},
}
"""What is in the ``error`` of each provider's answer."""


@dataclass(frozen=True, slots=True)
class _Operation:
    """``gives`` are the fields that every answer has; ``other`` is what may come in place of JSON."""

    whose: Whose
    method: str
    path: str
    summary: str
    body: type[BaseModel] | None = None
    gives: Sequence[str] = ()
    other: str | None = None
    query: tuple[tuple[str, tuple[str, ...]], ...] = ()
    statuses: Sequence[int] = tuple(_REFUSALS)


_STREAM = "text/event-stream"
_READ = (401, 403, 404, 413, 415, 503)
"""How reading may be refused."""


def _operations() -> list[_Operation]:
    return [*_of_openai(), *_of_anthropic(), *_of_google(), *_of_the_server()]


def _of_openai() -> list[_Operation]:
    from pie_edge.server.openai.chat_request import ChatBody
    from pie_edge.server.openai.completions_request import CompletionsBody
    from pie_edge.server.openai.embeddings import EmbeddingsBody
    from pie_edge.server.openai.responses_request import ResponsesBody

    answer, response = ("id", "object", "created", "model", "choices"), ("id", "object", "status", "output")
    make, read = functools.partial(_Operation, "OpenAI", "post"), functools.partial(_Operation, "OpenAI", "get")
    one = "/v1/responses/{id}"
    return [
        make("/v1/chat/completions", "Answer a conversation", ChatBody, answer, _STREAM),
        make("/v1/completions", "Continue a text", CompletionsBody, answer, _STREAM),
        make("/v1/responses", "Answer, and keep the answer", ResponsesBody, response, _STREAM),
        make("/v1/embeddings", "Vectors of texts", EmbeddingsBody, ("object", "data", "model", "usage")),
        read(one, "An answer that was kept", gives=response, query=(("stream", ("false",)),), statuses=(400, *_READ)),
        _Operation("OpenAI", "delete", one, "Forget an answer", gives=("id", "object", "deleted")),
        read(f"{one}/input_items", "What was answered", gives=("object", "data"), query=(("order", ("asc", "desc")),)),
        read("/v1/models", "The model, in the shape that the client's headers say", statuses=(400, *_READ)),
        read("/v1/models/{model}", "The model, in the shape that the client's headers say", statuses=(400, *_READ)),
    ]


def _of_anthropic() -> list[_Operation]:
    from pie_edge.server.anthropic.request import Body, Counted

    make = functools.partial(_Operation, "Anthropic", "post")
    return [
        make("/v1/messages", "Answer a conversation", Body, ("id", "type", "role", "content", "usage"), _STREAM),
        make("/v1/messages/count_tokens", "Count what the model would read", Counted, ("input_tokens",)),
    ]


def _of_google() -> list[_Operation]:
    from pie_edge.server.google.embedding import BatchBody, EmbedBody
    from pie_edge.server.google.request import Body, CountBody

    make, read = functools.partial(_Operation, "Google", "post"), functools.partial(_Operation, "Google", "get")
    streamed = (("alt", ("json", "sse")),)
    found = []
    for version in ("v1beta", "v1"):
        model = f"/{version}/models/{{model}}"
        found += [
            make(f"{model}:generateContent", "Answer a conversation", Body, ("candidates", "usageMetadata")),
            make(f"{model}:streamGenerateContent", "Answer step by step", Body, (), _STREAM, streamed),
            make(f"{model}:countTokens", "Count what the model would read", CountBody, ("totalTokens",)),
            make(f"{model}:embedContent", "The vector of a text", EmbedBody, ("embedding",)),
            make(f"{model}:batchEmbedContents", "Vectors of texts", BatchBody, ("embeddings",)),
        ]
    return [
        *found,
        read("/v1beta/models", "The model", gives=("models",), statuses=(400, *_READ)),
        read("/v1beta/models/{model}", "The model", gives=("name", "inputTokenLimit"), statuses=(400, *_READ)),
    ]


def _of_the_server() -> list[_Operation]:
    read = functools.partial(_Operation, "Server", "get")
    return [
        read("/health", "Whether requests are answered", gives=("status", "version"), statuses=(403, 413, 415)),
        read("/metrics", "Figures, as Prometheus reads them", other="text/plain", statuses=_READ),
        read("/openapi.json", "This document", gives=("openapi", "info", "paths"), statuses=_READ),
    ]


@functools.cache
def document() -> dict[str, Any]:
    operations = _operations()
    bodies = {one.body: None for one in operations if one.body is not None}
    references, found = models_json_schema([(body, "validation") for body in bodies], ref_template=_REFERENCE)
    paths: dict[str, dict[str, Any]] = {}
    for one in operations:
        schema = None if one.body is None else references[one.body, "validation"]
        paths.setdefault(one.path, {})[one.method] = _told(one, schema)
    return {
        "openapi": "3.1.0",
        "info": {"title": "pie-edge", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": found.get("$defs", {}),
            "responses": {name: _error(name) for name in _ERRORS},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"bearer": []}],
    }


def _told(one: _Operation, schema: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"summary": one.summary, "tags": [one.whose], "parameters": _parameters(one)}
    if schema is not None:
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    content = {} if one.other == "text/plain" else {"application/json": {"schema": _answer(one)}}
    if one.other is not None:
        content[one.other] = {"schema": _TEXT}
    found["responses"] = {"200": {"description": "Done.", "content": content}}
    if one.path == "/health":
        found["responses"]["503"] = {"description": "Not yet, or no longer.", "content": content}
    for status in one.statuses:
        found["responses"][str(status)] = {"$ref": f"#/components/responses/{one.whose}"}
    if one.path == "/health":
        found["security"] = []
    return found


def _answer(one: _Operation) -> dict[str, Any]:
    if one.other == _STREAM and not one.gives:
        return {"type": "array", "items": {"type": "object"}}
    return {"type": "object", "required": list(one.gives)}


def _parameters(one: _Operation) -> list[dict[str, Any]]:
    """A path's parameters are the names in it."""
    inside = [
        {"name": name, "in": "path", "required": True, "schema": _TEXT | {"minLength": 1}}
        for name in re.findall(r"{(\w+)}", one.path)
    ]
    return inside + [
        {"name": name, "in": "query", "schema": _TEXT | {"enum": list(values)}} for name, values in one.query
    ]


def _error(whose: Whose) -> dict[str, Any]:
    error = {"type": "object", "properties": _ERRORS[whose], "required": list(_ERRORS[whose])}
    schema: dict[str, Any] = {"type": "object", "properties": {"error": error}, "required": ["error"]}
    told = "; ".join(f"{status}: {text}" for status, text in _REFUSALS.items())
    return {"description": f"Refused. {told}", "content": {"application/json": {"schema": schema}}}


def route() -> Route:
    async def answer(request: Request) -> Response:
        return wire.json_response(document())

    return Route("/openapi.json", answer, methods=["GET"])
