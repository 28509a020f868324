"""OpenAI's API: chat completions, completions, responses, models, embeddings.

``routes`` are the endpoints of a service; ``error_response`` is how an error is told that comes before one of them is asked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pie_edge.errors import PieError
from pie_edge.server.generation import Service
from pie_edge.server.openai import chat, completions, embeddings, models
from pie_edge.server.openai.errors import BadRequest, error_response, response
from pie_edge.server.openai.responses import Responses
from pie_edge.server.openai.responses_store import KEEP_SECONDS, Store
from pie_edge.server.refusals import Query, UnknownQuery, check_query

__all__ = ["error_response", "routes"]

Handler = Callable[[Service, Request], Awaitable[Response]]
_NO_QUERY: Query = {}


def routes(service: Service, keep_seconds: float = KEEP_SECONDS) -> list[Route]:
    """Responses are kept for so many seconds."""
    responses = Responses(Store(keep_seconds))
    return [
        _route("POST", "/v1/chat/completions", chat.create, service),
        _route("POST", "/v1/completions", completions.create, service),
        _route("POST", "/v1/embeddings", embeddings.create, service),
        _route("POST", "/v1/responses", responses.create, service),
        _route("GET", "/v1/responses/{id}", responses.show, service, {"stream": ("true", "false")}),
        _route("DELETE", "/v1/responses/{id}", responses.delete, service),
        _route("GET", "/v1/responses/{id}/input_items", responses.inputs, service, {"order": ("asc", "desc")}),
        _route("GET", "/v1/models", models.index, service),
        _route("GET", "/v1/models/{model:path}", models.show, service),
    ]


def _route(method: str, path: str, handler: Handler, service: Service, query: Query = _NO_QUERY) -> Route:
    async def endpoint(request: Request) -> Response:
        try:
            check_query(request, query)
            return await handler(service, request)
        except UnknownQuery as error:
            return response(BadRequest(error.message, error.name, "unknown_parameter"))
        except PieError as error:
            return response(error)

    return Route(path, endpoint, methods=[method])
