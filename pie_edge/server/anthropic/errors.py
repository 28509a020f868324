"""Errors as Anthropic's SDKs know them."""

from __future__ import annotations

import secrets
from typing import Any

from starlette.responses import Response

from pie_edge.errors import PieError
from pie_edge.server import wire
from pie_edge.server.exchange import current
from pie_edge.server.failures import Failure, failure

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def error_response(status: int, error: PieError) -> Response:
    body = error_body(status, error)
    return wire.json_response(body, status, {"request-id": body["request_id"], **failure(error).headers})


def error_body(status: int, error: PieError) -> dict[str, Any]:
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    told = {"type": kind, "message": _message(failure(error))}
    return {"type": "error", "error": told, "request_id": request_id()}


def request_id() -> str:
    """By which the log knows it, too."""
    exchange = current.get()
    return f"req_{secrets.token_hex(12)}" if exchange is None else exchange.id


def _message(told: Failure) -> str:
    if told.tokens is not None and told.limit is not None:
        return f"prompt is too long: {told.tokens} tokens > {told.limit} maximum"
    return f"prompt is too long: {told.message}" if told.kind == "context" else told.message
