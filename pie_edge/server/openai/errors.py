"""Errors as OpenAI's API has them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from starlette.responses import Response

from pie_edge.errors import (
    ContextOverflow,
    GrammarError,
    ModelNotFound,
    PieError,
    TemplateError,
    Unauthorized,
    UsageError,
)
from pie_edge.server.failures import Failure, failure
from pie_edge.server.generation import Card, Event, Request
from pie_edge.server.wire import event, json_response

_TYPES = {
    "invalid": "invalid_request_error",
    "context": "invalid_request_error",
    "not-found": "invalid_request_error",
    "overloaded": "rate_limit_error",
    "unavailable": "server_error",
    "timeout": "server_error",
    "internal": "server_error",
}
_CODES = {
    "context": "context_length_exceeded",
    "not-found": "model_not_found",
    "overloaded": "rate_limit_exceeded",
    "unavailable": "server_unavailable",
    "timeout": "timeout",
}


class BadRequest(UsageError):  # noqa: N818
    """``param`` is the parameter's name, as in ``messages[0].content``."""

    def __init__(self, message: str, param: str | None = None, reason: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.param = param
        self.reason = reason
        self.status = status


class TooLong(ContextOverflow):
    """What ``param`` gives is more than the model can read."""

    def __init__(self, error: ContextOverflow, param: str) -> None:
        super().__init__(error.message, error.tokens, error.limit)
        self.param = param


class UnknownModel(ModelNotFound):
    """Named by the parameter ``model``."""


def check_model(name: str, card: Card) -> None:
    """Raises UnknownModel for another model than the one that is served."""
    if name != card.name:
        raise UnknownModel(f"The model '{name}' does not exist: this server serves '{card.name}'.")


def form_of(request: Request, constraint: str) -> str:
    """The place of what an answer has to match: ``constraint``, unless it is to be calls of tools."""
    return constraint if request.tool_choice in ("auto", "none") and request.constraint is not None else "tools"


async def placed(
    events: AsyncGenerator[Event, None], prompt: str, constraint: str | None = None
) -> AsyncGenerator[Event, None]:
    """The events of a generation. What its prompt, or the form of its answer, is refused for is told by its place."""
    async with aclosing(events):
        try:
            async for one in events:
                yield one
        except ContextOverflow as error:
            raise TooLong(error, prompt) from None
        except TemplateError as error:
            raise BadRequest(error.message, prompt) from None
        except GrammarError as error:
            raise BadRequest(error.message, constraint) from None


def error_response(status: int, error: PieError) -> Response:
    """For what is refused before or instead of an answer."""
    told = failure(error)
    return json_response(body(error), status, told.headers)


def response(error: PieError) -> Response:
    return error_response(error.status if isinstance(error, BadRequest) else failure(error).status, error)


def body(error: PieError) -> dict[str, Any]:
    told = failure(error)
    return {
        "error": {
            "message": _message(error, told),
            "type": _TYPES[told.kind],
            "param": _param(error),
            "code": _code(error, told),
        }
    }


def _code(error: PieError, told: Failure) -> str | None:
    if isinstance(error, BadRequest):
        return error.reason
    return "invalid_api_key" if isinstance(error, Unauthorized) else _CODES.get(told.kind)


def _param(error: PieError) -> str | None:
    if isinstance(error, BadRequest | TooLong):
        return error.param
    return "model" if isinstance(error, UnknownModel) else None


def _message(error: PieError, told: Failure) -> str:
    if told.tokens is None or told.limit is None:
        return told.message
    most = f"This model's maximum context length is {told.limit} tokens. However, "
    if isinstance(error, TooLong) and error.param != "messages":
        return f"{most}your {error.param} resulted in {told.tokens} tokens. Please reduce its length."
    return f"{most}your messages resulted in {told.tokens} tokens. Please reduce the length of the messages."


def in_stream(error: PieError) -> str:
    """As an event of a stream that has begun."""
    return event(body(error))
