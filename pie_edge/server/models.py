"""``/v1/models``, a path that three providers share: a client says by its headers whose it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from pie_edge.errors import PieError
from pie_edge.server import anthropic, google
from pie_edge.server.generation import Card, Service
from pie_edge.server.refusals import Endpoint, Paging, Query, answering, check_query


@dataclass(frozen=True, slots=True)
class _Shape:
    """``headers``: those that none but this provider's clients send."""

    headers: frozenset[bytes]
    all_of_them: Callable[[Card], Response]
    one: Callable[[Card, str], Response]
    error_response: Callable[[int, PieError], Response]
    paging: Paging
    query: Query


_SHAPES = (
    _Shape(
        frozenset({b"anthropic-version"}),
        anthropic.models_response,
        anthropic.model_response,
        anthropic.error_response,
        anthropic.PAGING,
        anthropic.QUERY,
    ),
    _Shape(
        frozenset({b"x-goog-api-key", b"x-goog-api-client"}),
        google.models_response,
        google.model_response,
        google.error_response,
        google.PAGING,
        google.QUERY,
    ),
)


class _HeaderRoute(Route):
    """A route for requests with one of the headers alone."""

    def __init__(self, path: str, endpoint: Endpoint, headers: frozenset[bytes]) -> None:
        super().__init__(path, endpoint, methods=["GET"])
        self._headers = headers

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http" or not self._headers & {name for name, _ in scope["headers"]}:
            return Match.NONE, {}
        match, found = super().matches(scope)
        # Another method may be another route's.
        return (match, found) if match is Match.FULL else (Match.NONE, {})


def routes(service: Service) -> list[Route]:
    """Those of Anthropic's and Google's clients. They go before OpenAI's own, which answer everybody else."""
    return [route for shape in _SHAPES for route in _routes(service, shape)]


def _routes(service: Service, shape: _Shape) -> list[Route]:
    async def all_of_them(request: Request) -> Response:
        shape.paging.check(request, shape.query)
        return shape.all_of_them(service.card)

    async def one(request: Request) -> Response:
        check_query(request, shape.query)
        return shape.one(service.card, request.path_params["name"])

    return [
        _HeaderRoute("/v1/models", answering(all_of_them, shape.error_response), shape.headers),
        _HeaderRoute("/v1/models/{name:path}", answering(one, shape.error_response), shape.headers),
    ]
