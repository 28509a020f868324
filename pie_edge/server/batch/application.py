"""The server's application with an engine of its own, and without a port."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from starlette.types import ASGIApp

from pie_edge.config import Settings
from pie_edge.protocol.messages import State
from pie_edge.server import app
from pie_edge.server.admission import Admission, room
from pie_edge.server.completion import CompletionService
from pie_edge.server.link import Link
from pie_edge.server.supervisor import ENGINE, Supervisor


@asynccontextmanager
async def application(
    settings: Settings, on_state: Callable[[State], None], command: Sequence[str] = ENGINE
) -> AsyncIterator[ASGIApp]:
    """With the model loaded. Raises ModelError or BackendError."""
    # Nobody else can ask: there is no key to give.
    serve = replace(settings.serve, host="127.0.0.1", api_keys=())
    supervisor = Supervisor(settings, on_state, command)
    try:
        await supervisor.ready()
        link = Link(supervisor, Admission(serve.generations or room(), serve.queue))
        yield app.build(CompletionService(link, link.card), serve, []).asgi
    finally:
        await supervisor.close()
