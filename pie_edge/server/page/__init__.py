"""The page at ``/``: files as they are, and a policy under which a browser runs nothing else and asks nobody else."""

from __future__ import annotations

from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

TYPES = {"html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-cache",
}


def routes() -> list[Route]:
    """The files are read once, so that no request reaches the file system."""
    pages = {entry.name: entry.read_bytes() for entry in files(__name__).iterdir() if _type(entry.name)}
    return [_route("/" if name == "index.html" else f"/page/{name}", name, pages[name]) for name in sorted(pages)]


def _route(path: str, name: str, content: bytes) -> Route:
    async def answer(request: Request) -> Response:
        return Response(content, media_type=_type(name), headers=HEADERS)

    return Route(path, answer, methods=["GET"])


def _type(name: str) -> str | None:
    return TYPES.get(name.rpartition(".")[2])
