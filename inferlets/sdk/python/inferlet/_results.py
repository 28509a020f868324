"""What ``main`` returned, as JSON; where it can't be, the place that is in the way."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from inferlet._report import UnserialisableError

_MOST = 16 * 2**20  # bytes of JSON
_DEEPEST = 200
_KEYS = (str, int, float, bool, type(None))
_LARGEST = 10**4300  # the longest whole number that Python reads back without being asked to


def dump(result: Any) -> str:
    """Raises UnserialisableError, naming the place: ``result["steps"][0] is a set``."""
    try:
        # The encoder's recursion would overflow the stack of the guest, which nothing can catch.
        text = "" if _too_deep(result) else json.dumps(result, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UnserialisableError(_offence(result) or f"the result has no JSON form: {error}") from None
    if not text:
        raise UnserialisableError(_offence(result) or "the result is nested too deeply")
    if len(text) > _MOST:
        raise UnserialisableError(
            f"the result is {len(text):,} bytes of JSON, the most is {_MOST:,}; send large data with session.send"
        )
    return text


def _too_deep(result: Any) -> bool:
    """Whether lists and dicts nest deeper than allowed, found without recursion; one that contains itself does."""
    level = [result]
    for _ in range(_DEEPEST + 1):
        level = [
            item
            for value in level
            if isinstance(value, list | tuple | dict)
            for item in (value.values() if isinstance(value, dict) else value)
            if isinstance(item, list | tuple | dict)
        ]
        if not level:
            return False
    return True


def _offence(result: Any) -> str | None:
    remedy = "return numbers, strings, booleans, None, lists, tuples, and dicts of those"
    for place, said in _walk(result, "result", ()):
        return f"{place} {said}, which has no JSON form; {remedy}"
    return None


def _walk(value: Any, place: str, above: tuple[int, ...]) -> Iterator[tuple[str, str]]:
    """The places that have no JSON form."""
    if id(value) in above:
        yield place, "contains itself"
    elif len(above) > _DEEPEST:
        yield place[:200] + "…", f"is nested more than {_DEEPEST} deep"
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, _KEYS):
                yield place, f"has the key {key!r:.60}, a {type(key).__name__}"
            yield from _walk(item, f"{place}[{key!r:.60}]", (*above, id(value)))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _walk(item, f"{place}[{index}]", (*above, id(value)))
    elif isinstance(value, float) and not math.isfinite(value):
        yield place, f"is {value}"
    elif isinstance(value, int) and not -_LARGEST < value < _LARGEST:
        yield place, "is a whole number of more than 4,300 digits"
    elif not isinstance(value, str | int | float | bool | None):
        kind = type(value)
        name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        article = "an" if name[0].lower() in "aeiou" else "a"
        yield place, f"is {article} {name}"
