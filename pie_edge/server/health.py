"""``/health``: whether the server answers requests, and if not yet, how far its model is."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from pie_edge import __version__
from pie_edge.protocol.messages import State


def told(state: State, draining: bool, starts: int) -> dict[str, object]:
    """As JSON has it."""
    found: dict[str, object] = {
        "status": "draining" if draining else state.phase,
        "version": __version__,
        "engine_starts": starts,
    }
    if state.phase == "loading":
        found["progress"] = {"what": state.what, "done": state.done, "total": state.total}
    if state.phase == "failed":
        found["error"] = {"code": state.code, "message": state.message}
    if state.model is not None:
        model = state.model
        found["model"] = {"name": model.name, "context": model.context}
        found["backend"] = {"name": model.backend, "device": model.device}
    return found


def route(state: Callable[[], State], draining: Callable[[], bool], starts: Callable[[], int]) -> Route:
    async def health(request: Request) -> JSONResponse:
        now = state()
        ready = now.phase == "ready" and not draining()
        headers = {"cache-control": "no-store"} | ({} if ready else {"retry-after": "1"})
        return JSONResponse(told(now, draining(), starts()), 200 if ready else 503, headers)

    return Route("/health", health, methods=["GET", "HEAD"])
