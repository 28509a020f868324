"""Errors as Google's SDK knows them."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from pie_edge.errors import ContextOverflow, PieError
from pie_edge.server import wire
from pie_edge.server.failures import Failure, failure

_STATUSES = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class TooLong(ContextOverflow):
    """What ``place`` gives is more than the model can read."""

    def __init__(self, error: ContextOverflow, place: str) -> None:
        super().__init__(f"{place}: {error.message}", error.tokens, error.limit)
        self.place = place


def error_response(status: int, error: PieError) -> Response:
    return wire.json_response(error_body(status, error), status, failure(error).headers)


def error_body(status: int, error: PieError) -> dict[str, Any]:
    name = _STATUSES.get(status, "INVALID_ARGUMENT" if status < 500 else "INTERNAL")
    return {"error": {"code": status, "message": _message(error, failure(error)), "status": name}}


def _message(error: PieError, told: Failure) -> str:
    if told.tokens is None or told.limit is None:
        return told.message
    place = f"{error.place}: " if isinstance(error, TooLong) else ""
    return f"{place}The input token count ({told.tokens}) exceeds the maximum number of tokens allowed ({told.limit})."
