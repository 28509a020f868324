"""What crosses to the host must be of the type that the contract says: a wrong one would end the whole program."""

from __future__ import annotations

from collections.abc import Iterable

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
