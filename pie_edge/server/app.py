"""The application on the server's one port: the providers' endpoints, inferlets, health; behind the gate."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from pie_edge.config import ServeSettings
from pie_edge.errors import PieError, UsageError
from pie_edge.server import models, openapi
from pie_edge.server.access import BEARER, Access
from pie_edge.server.failures import expected
from pie_edge.server.gate import Gate, Refuse
from pie_edge.server.generation import Service


@dataclass(frozen=True, slots=True)
class Provider:
    """Whose wire format the paths are of that match ``paths``."""

    paths: re.Pattern[str]
    routes: Callable[[Service], Sequence[Route]]
    error_response: Callable[[int, PieError], Response]
    key: str = BEARER
    """How its clients send theirs."""


def providers(settings: ServeSettings) -> tuple[Provider, ...]:
    """The more specific paths first."""
    from pie_edge.server import anthropic, google, openai

    return (
        Provider(re.compile("/v1/messages"), anthropic.routes, anthropic.error_response, "x-api-key: KEY"),
        Provider(re.compile("/v1beta/|/v1/models/.*:"), google.routes, google.error_response, "x-goog-api-key: KEY"),
        Provider(re.compile("/v1/"), partial(openai.routes, keep_seconds=settings.keep), openai.error_response),
    )


@dataclass(frozen=True, slots=True)
class App:
    """``asgi`` is what a server runs; ``gate`` is inside of it. ``refuse`` is how it says no."""

    asgi: ASGIApp
    gate: Gate
    refuse: Refuse


def build(service: Service, settings: ServeSettings, others: Sequence[BaseRoute]) -> App:
    """``others`` are the routes that are no provider's."""
    known = providers(settings)

    def refuse(path: str, status: int, error: PieError) -> Response:
        for provider in known:
            if provider.paths.match(path):
                return provider.error_response(status, error)
        return JSONResponse({"error": {"code": error.code, "message": error.message}}, status)

    def sent_as(path: str) -> str:
        return next((provider.key for provider in known if provider.paths.match(path)), BEARER)

    async def failed(request: Request, error: Exception) -> Response:
        return refuse(request.url.path, 500, expected(error))

    async def unknown(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        said = {404: "there is nothing at", 405: f"{request.method} can't be done at"}.get(error.status_code)
        told = f"{said} {request.url.path}" if said else error.detail
        headers = dict(error.headers or {})
        if error.status_code == 405:
            headers["Allow"] = _methods(routes, request.url.path)
            told += f"; there is {headers['Allow']}"
        response = refuse(request.url.path, error.status_code, UsageError(told))
        response.headers.update(headers)
        return response

    of_providers = [route for provider in known for route in provider.routes(service)]
    routes = [*models.routes(service), *of_providers, openapi.route(), *others]
    app = Starlette(routes=routes, exception_handlers={HTTPException: unknown, Exception: failed})
    # A path with a slash too many isn't there, which the provider's own shape says.
    app.router.redirect_slashes = False
    gate = Gate(app, Access(settings.host, settings.api_keys, settings.cors, sent_as), settings.body, refuse)
    return App(_with_cors(gate, settings.cors), gate, refuse)


def _methods(routes: Sequence[BaseRoute], path: str) -> str:
    """All that can be done at a path, which several routes may have."""
    there = [one for one in routes if isinstance(one, Route) and one.path_regex.match(path)]
    return ", ".join(sorted({method for one in there for method in one.methods or ()}))


def _with_cors(app: ASGIApp, origins: Sequence[str]) -> ASGIApp:
    """Off unless origins are named: a page of anybody's could use the server of whoever looks at it."""
    if not origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=["*"],
        allow_headers=["*"],
        expose_headers=["x-request-id", "retry-after"],
    )
