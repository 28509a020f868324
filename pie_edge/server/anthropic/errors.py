"""Errors as Anthropic's SDKs know them."""

from __future__ import annotations

import secrets
from typing import Any

from starlette.responses import JSONResponse, Response

from pie_edge.errors import PieError
from pie_edge.server.failures import code

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
_RETRY_SECONDS = "1"


def error_response(status: int, error: PieError) -> Response:
    name = f"req_{secrets.token_hex(12)}"
    headers = {"request-id": name}
    if status in (429, 503):
        headers["retry-after"] = _RETRY_SECONDS
    return JSONResponse(error_body(status, error, name), status, headers)


def error_body(status: int, error: PieError, request: str) -> dict[str, Any]:
    message = str(error)
    if code(error) == "context-overflow":
        message = f"prompt is too long: {message}"
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": request}
