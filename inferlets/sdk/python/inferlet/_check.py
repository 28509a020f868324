"""What crosses to the host must be of the type that the contract says: a wrong one would end the whole program."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from inferlet.errors import InvalidHandle

U32 = 2**32 - 1


def text(value: object, what: str) -> str:
    """``value``, if it is text that has a UTF-8 form."""
    if not isinstance(value, str):
        raise TypeError(f"{what} takes text, and {value!r} is of type {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{what} was given text with a lone surrogate at {error.start}, which has no UTF-8 form"
        ) from None
    return value


def switch(value: object, what: str) -> bool | None:
    """``value``, if it is True, False or None."""
    if value is not None and type(value) is not bool:
        raise TypeError(
            f"{what} takes thinking as True, False or None, and {value!r} is of type {type(value).__name__}"
        )
    return value


def json_list(values: Iterable[object], what: str) -> str:
    """``values`` as JSON text, if they are a list of things that have such."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise TypeError(f"{what} takes a list, and {values!r:.80} is of type {type(values).__name__}")
    return json_text(list(values), what)


def json_text(value: object, what: str) -> str:
    """``value`` as JSON, if it has such a form."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"{what} takes what has a JSON form: {error}") from None


def tokens(values: Iterable[int], what: str) -> list[int]:
    """``values``, if they are whole numbers that could be token ids."""
    found = list(values)
    for value in found:
        if type(value) is not int or not 0 <= value <= U32:
            raise InvalidHandle(f"{what} takes token ids, and {value!r} is none")
    return found


def count(value: int, what: str) -> int:
    """``value``, if it is a whole number from 0 up that the host could mean."""
    if type(value) is not int or not 0 <= value <= U32:
        raise InvalidHandle(f"{what} is {value!r}; it must be a whole number from 0 to {U32}")
    return value
