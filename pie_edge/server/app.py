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
from pie_edge.server.access import Access
from pie_edge.server.gate import Gate
from pie_edge.server.generation import Service


@dataclass(frozen=True, slots=True)
class Provider:
    """Whose wire format the paths are of that match ``paths``."""

    paths: re.Pattern[str]
    routes: Callable[[Service], Sequence[Route]]
    error_response: Callable[[int, PieError], Response]


def providers(settings: ServeSettings) -> tuple[Provider, ...]:
    """The more specific paths first."""
    from pie_edge.server import anthropic, google, openai

    return (
        Provider(re.compile("/v1/messages"), anthropic.routes, anthropic.error_response),
        Provider(re.compile("/v1beta/|/v1/models/.*:"), google.routes, google.error_response),
        Provider(re.compile("/v1/"), partial(openai.routes, keep_seconds=settings.keep), openai.error_response),
    )


@dataclass(frozen=True, slots=True)
class App:
    """``asgi`` is what a server runs; ``gate`` is inside of it."""

    asgi: ASGIApp
    gate: Gate


def build(service: Service, settings: ServeSettings, others: Sequence[BaseRoute]) -> App:
    """``others`` are the routes that are no provider's."""
    known = providers(settings)

    def refuse(path: str, status: int, error: PieError) -> Response:
        for provider in known:
            if provider.paths.match(path):
                return provider.error_response(status, error)
        return JSONResponse({"error": {"code": error.code, "message": error.message}}, status)

    async def failed(request: Request, error: Exception) -> Response:
        return refuse(
            request.url.path, 500, PieError(f"pie-edge failed: {type(error).__name__}: {error}; please report it")
        )

    async def unknown(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        said = {404: "there is nothing at", 405: f"{request.method} can't be done at"}.get(error.status_code)
        told = f"{said} {request.url.path}" if said else error.detail
        response = refuse(request.url.path, error.status_code, UsageError(told))
        response.headers.update(error.headers or {})
        return response

    routes = [*models.routes(service), *(route for provider in known for route in provider.routes(service))]
    app = Starlette(
        routes=[*routes, openapi.route(), *others], exception_handlers={HTTPException: unknown, Exception: failed}
    )
    # A path with a slash too many isn't there, which the provider's own shape says.
    app.router.redirect_slashes = False
    gate = Gate(app, Access(settings.host, settings.api_keys, settings.cors), settings.body, refuse)
    return App(_with_cors(gate, settings.cors), gate)


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
