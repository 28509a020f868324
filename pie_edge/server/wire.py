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
        found = model.model_validate_json(body, strict=True)
    except ValidationError as error:
        first = _telling(error.errors(include_url=False, include_context=False))
        raise InvalidBody(_place(first["loc"], tags), first["msg"], first["type"]) from None
    # What the validator can't see: of two fields with one name it takes the last.
    json.loads(body, object_pairs_hook=_distinct, parse_constant=_no_number)
    return found


def _telling(errors: Sequence[Any]) -> Any:
    """Of the branches of a union, the one that came furthest says best what is wrong; one that wants another type says least."""
    firsts: dict[tuple[str, ...], Any] = {}
    for one in errors:
        firsts.setdefault(tuple(part for part in one["loc"] if isinstance(part, str)), one)

    def rank(one: Any) -> tuple[bool, int, tuple[int, ...]]:
        wants_other = one["type"].endswith(("_type", "literal_error"))
        return not wants_other, len(one["loc"]), tuple(part for part in one["loc"] if isinstance(part, int))

    return max(firsts.values(), key=rank)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidBody([twice], f"the name {twice!r:.80} comes twice in one object", "duplicate")
    return found


def _no_number(name: str) -> None:
    raise InvalidBody([], f"{name} is no number of JSON's", "json_invalid")


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
