"""Errors as Google's SDK knows them."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse, Response

from pie_edge.errors import PieError

_STATUSES = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_RETRY_SECONDS = "1"


def error_response(status: int, error: PieError) -> Response:
    headers = {"retry-after": _RETRY_SECONDS} if status in (429, 503) else None
    return JSONResponse(error_body(status, error), status, headers)


def error_body(status: int, error: PieError) -> dict[str, Any]:
    name = _STATUSES.get(status, "INVALID_ARGUMENT" if status < 500 else "INTERNAL")
    return {"error": {"code": status, "message": str(error), "status": name}}
