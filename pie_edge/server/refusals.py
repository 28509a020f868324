"""Endpoints whose errors are answers of the provider's own shape."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from pie_edge.errors import PieError, UsageError
from pie_edge.server import wire
from pie_edge.server.failures import failure
from pie_edge.server.invalid import InvalidBody

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


Query = Mapping[str, Sequence[str]]
"""What a query may have, and the values of each."""


class UnknownQuery(UsageError):  # noqa: N818
    """The query says what is not known here: the parameter's ``name``."""

    def __init__(self, name: str, value: str, known: Query) -> None:
        may = [f"{one}={' or '.join(values)}" for one, values in known.items()]
        super().__init__(f"the query has {name!r:.80}: {value!r:.80}; it may have: {', '.join([*may, 'key'])}")
        self.name = name


def check_query(request: Request, known: Query) -> None:
    """Raises UnknownQuery. ``key`` is the client's key; whatever it is, it has been looked at."""
    for name, value in request.query_params.multi_items():
        _check_known(name, value, known)


def _check_known(name: str, value: str, known: Query) -> None:
    if name != "key" and value not in known.get(name, ()):
        raise UnknownQuery(name, value, known)


@dataclass(frozen=True, slots=True)
class Paging:
    """How a list is asked for in pages, where there is one: ``size`` is how many a page has at most, up to ``most``; ``cursors``
    say where it begins."""

    size: str
    most: int
    cursors: Sequence[str]

    def check(self, request: Request, known: Query) -> None:
        """Raises UsageError for a size that is none and for a place that no page begins at, UnknownQuery."""
        for name, value in request.query_params.multi_items():
            if name == self.size:
                if not re.fullmatch("[0-9]{1,9}", value) or not 1 <= int(value) <= self.most:
                    raise UsageError(f"{name}: it is {value!r:.80}, and should be 1 to {self.most}")
            elif name in self.cursors:
                raise UsageError(f"{name}: the list is one page, so none begins at {value!r:.80}; leave it out")
            else:
                _check_known(name, value, known)


async def read(model: type[M], request: Request, tags: Collection[str] = ()) -> M:
    """The request's body. Raises UsageError naming the field that is wrong."""
    return parse(model, await request.body(), tags)


def parse(model: type[M], body: bytes, tags: Collection[str] = ()) -> M:
    try:
        return wire.read(model, body, tags)
    except InvalidBody as error:
        if error.kind == "extra_forbidden":
            raise UsageError(f"{error.shown}: there is no such field here") from None
        raise UsageError(f"{error.shown or 'the body'}: {error.message.removeprefix('Value error, ')}") from None
