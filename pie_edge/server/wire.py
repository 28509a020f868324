"""JSON in and out, for all providers."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.responses import Response

M = TypeVar("M", bound=BaseModel)
_TYPES = frozenset({"str", "int", "float", "bool", "none"})


class InvalidBody(Exception):  # noqa: N818
    """A body that doesn't fit: where, in what way, and pydantic's word for that."""

    def __init__(self, place: Sequence[int | str], message: str, kind: str) -> None:
        super().__init__(message)
        self.place = place
        self.message = message
        self.kind = kind

    @property
    def path(self) -> str:
        """``messages[0].content``"""
        found = ""
        for part in self.place:
            found += f"[{part}]" if isinstance(part, int) else f".{part}" if found else part
        return found


def read(model: type[M], body: bytes, tags: Collection[str] = ()) -> M:
    """Raises InvalidBody, of one thing that is wrong. ``tags`` name branches of unions, which are no part of a place."""
    try:
        return model.model_validate_json(body, strict=True)
    except ValidationError as error:
        # Of a union the branch that came furthest says best what is wrong.
        first = max(error.errors(include_url=False, include_context=False), key=lambda one: len(one["loc"]))
        raise InvalidBody(_place(first["loc"], tags), first["msg"], first["type"]) from None


def _place(location: Sequence[int | str], tags: Collection[str]) -> list[int | str]:
    """Without what pydantic calls the branches of unions: types (``list[int]``), and the values that tell branches apart."""
    found: list[int | str] = []
    for number, part in enumerate(location):
        is_type = isinstance(part, str) and (part in _TYPES or not part.isidentifier() or part[:1].isupper())
        is_branch = is_type or (part in tags and number < len(location) - 1)
        # A field may have the name of its branch.
        if not is_branch or location[number - 1 : number] == (part,):
            found.append(part)
    return found


def text(value: object) -> str:
    """Compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def json_response(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(text(value), status, headers, media_type="application/json")


def event(value: object, name: str | None = None) -> str:
    """As a server-sent event."""
    data: Any = text(value)
    return f"data: {data}\n\n" if name is None else f"event: {name}\ndata: {data}\n\n"
