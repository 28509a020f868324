"""Endpoints whose errors are answers of the provider's own shape."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from pie_edge.errors import PieError, UsageError
from pie_edge.server import wire
from pie_edge.server.failures import failure

M = TypeVar("M", bound=BaseModel)
Endpoint = Callable[[Request], Awaitable[Response]]


def answering(endpoint: Endpoint, error_response: Callable[[int, PieError], Response]) -> Endpoint:
    """The endpoint, which answers what it raises."""

    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except PieError as error:
            return error_response(failure(error).status, error)

    return answer


async def read(model: type[M], request: Request, tags: Collection[str] = ()) -> M:
    """The request's body. Raises UsageError naming the field that is wrong."""
    return parse(model, await request.body(), tags)


def parse(model: type[M], body: bytes, tags: Collection[str] = ()) -> M:
    try:
        return wire.read(model, body, tags)
    except wire.InvalidBody as error:
        if error.kind == "extra_forbidden":
            raise UsageError(f"{error.shown}: there is no such field here") from None
        raise UsageError(f"{error.shown or 'the body'}: {error.message.removeprefix('Value error, ')}") from None
