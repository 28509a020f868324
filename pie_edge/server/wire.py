"""JSON in and out, for all providers."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import from_json
from starlette.responses import Response

from pie_edge.server.invalid import InvalidBody, told

M = TypeVar("M", bound=BaseModel)
_TYPES = frozenset({"str", "int", "float", "bool", "none"})


def read(model: type[M], body: bytes, tags: Collection[str] = ()) -> M:
    """Raises InvalidBody, of one thing that is wrong. ``tags`` name branches of unions, which are no part of a place."""
    try:
        found = model.model_validate_json(body, strict=True)
    except ValidationError as error:
        errors, whole = error.errors(include_url=False), _parsed(body)
        first = _telling(errors)
        place, holder = _place(first["loc"], tags, whole)
        _check_twin(model, place, holder, first["type"])
        near = (one for one in errors if _numbers(one) == _numbers(first))
        same = [one for one in near if _place(one["loc"], tags, whole)[0] == place]
        raise told(place, first, same) from None
    # What the validator can't see: of two fields with one name it takes the last, and 1e999 is infinity to it.
    try:
        json.loads(body, object_pairs_hook=_distinct, parse_constant=_no_number, parse_float=_finite)
    except _Overflow as error:
        raise InvalidBody(
            next(_infinities(json.loads(body))),
            f"{error.args[0]:.80} is beyond the numbers that there are here",
            "finite_number",
        ) from None
    return found


class _Overflow(ValueError):  # noqa: N818
    """A number as it is written."""


def _finite(number: str) -> float:
    found = float(number)
    if math.isinf(found):
        raise _Overflow(number)
    return found


def _infinities(value: Any, place: Sequence[int | str] = ()) -> Iterator[Sequence[int | str]]:
    """Their places."""
    if isinstance(value, float) and math.isinf(value):
        yield place
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        yield from _infinities(part, (*place, name))


def _telling(errors: Sequence[Any]) -> Any:
    """Of the branches of a union, the one that came furthest says best what is wrong; one that wants another type says least."""
    firsts: dict[tuple[str, ...], Any] = {}
    for one in errors:
        firsts.setdefault(tuple(part for part in one["loc"] if isinstance(part, str)), one)

    def rank(one: Any) -> tuple[bool, int, tuple[int, ...]]:
        wants_other = one["type"].endswith(("_type", "literal_error"))
        return not wants_other, len(one["loc"]), _numbers(one)

    return max(firsts.values(), key=rank)


def _numbers(error: Any) -> tuple[int, ...]:
    return tuple(part for part in error["loc"] if isinstance(part, int))


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidBody([twice], f"the name {twice!r:.80} comes twice in one object", "duplicate")
    return found


def _no_number(name: str) -> None:
    raise InvalidBody([], f"{name} is no number of JSON's", "json_invalid")


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _place(location: Sequence[int | str], tags: Collection[str], body: Any) -> tuple[list[int | str], Any]:
    """Without what pydantic calls the branches of unions: types (``list[int]``), and the values that tell branches apart; and
    the part of the body that the last of it is in."""
    found: list[int | str] = []
    value = holder = body
    for number, part in enumerate(location):
        # A field may have any name, a type's too: then it is there.
        is_type = isinstance(part, str) and _names_type(part) and not (isinstance(value, dict) and part in value)
        is_branch = is_type or (part in tags and number < len(location) - 1 and not _is_field(part, value))
        # A field may have the name of its branch.
        if not is_branch or location[number - 1 : number] == (part,):
            found.append(part)
            holder, value = value, _within(value, part)
    return found, holder


def _is_field(name: int | str, value: Any) -> bool:
    """Whether it is a field of this, rather than what its ``type`` or ``role`` says of it."""
    return isinstance(value, dict) and name in value and name not in (value.get("type"), value.get("role"))


def _names_type(part: str) -> bool:
    return part in _TYPES or not part.isidentifier() or part[:1].isupper()


def _within(value: Any, part: int | str) -> Any:
    if isinstance(value, dict):
        return value.get(part)
    return value[part] if isinstance(value, list) and isinstance(part, int) and part < len(value) else None


def _check_twin(model: type[BaseModel], place: Sequence[int | str], holder: Any, kind: str) -> None:
    """Raises InvalidBody for a field under both of its names, of which the validator says that it knows no more than one."""
    if kind != "extra_forbidden" or "alias_generator" not in model.model_config or not isinstance(holder, dict):
        return
    name = str(place[-1])
    other = next((one for one in holder if one != name and to_camel(one) == to_camel(name)), None)
    if other is not None:
        raise InvalidBody(place, f"it is given twice, as {other} too", "duplicate")


def text(value: object) -> str:
    """Compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def said(given: str, cut: bool = False) -> Any:
    """What a JSON text of a model's says; of one that was ``cut``, as far as it came. A number such as 1e999, which a grammar
    lets a model write, is the nearest that there is. Raises ValueError for a text that is no JSON."""
    return _nearest(from_json(given, allow_partial="trailing-strings" if cut else False, allow_inf_nan=False))


def _nearest(value: Any) -> Any:
    """With the largest numbers in place of infinities, which JSON hasn't."""
    match value:
        case float() if math.isinf(value):
            return math.copysign(sys.float_info.max, value)
        case dict():
            return {name: _nearest(one) for name, one in value.items()}
        case list():
            return [_nearest(one) for one in value]
    return value


def json_response(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(text(value), status, headers, media_type="application/json")


def event(value: object, name: str | None = None) -> str:
    """As a server-sent event."""
    data: Any = text(value)
    return f"data: {data}\n\n" if name is None else f"event: {name}\ndata: {data}\n\n"
