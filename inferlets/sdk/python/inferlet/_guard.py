"""What crosses to the host is checked against the bindings' own annotations: a value of another type, or one too large to copy,
would end the whole program where it can't be caught."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Iterable
from typing import Any

from inferlet import _check
from inferlet.errors import ResourceError, UsageError

MOST_ELEMENTS = 1_000_000
"""Of one list in one call."""
MOST_BYTES = 3 * 2**20
"""Of a list of bytes in one call."""
_WIDE = {"seed", "time", "memory", "timeout", "offset"}
"""Whole numbers of 64 bits, by name; all others have 32."""
_SIGNED = {"priority"}

Check = Callable[[Any], Any]


def guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` of the bindings, with its arguments checked. Raises TypeError, ValueError, UsageError or ResourceError."""
    checks = _checks(getattr(function, "__func__", function))

    def call(*arguments: Any) -> Any:
        return function(*[check(value) for check, value in zip(checks, arguments, strict=True)])

    return call


def record(kind: type, *fields: Any) -> Any:
    """A record of the bindings, with its fields checked."""
    return kind(*[check(value) for check, value in zip(_fields(kind), fields, strict=True)])


@functools.cache
def _checks(function: Callable[..., Any]) -> tuple[Check, ...]:
    parameters = inspect.signature(function).parameters
    hints = _hints(function)
    name = function.__name__.replace("_", "-")
    return tuple(
        _check_of(hints.get(one, Any), f"{name}: {one}", one) for one in parameters if one not in ("self", "cls")
    )


@functools.cache
def _fields(kind: type) -> tuple[Check, ...]:
    return tuple(_check_of(hint, f"{kind.__name__.lower()}: {name}", name) for name, hint in _hints(kind).items())


def _hints(of: Any) -> dict[str, Any]:
    found = dict(getattr(of, "__annotations__", {}))
    found.pop("return", None)
    return found


def _check_of(hint: Any, what: str, name: str) -> Check:
    if hint is str:
        return functools.partial(_check.text, what=what)
    if hint is int:
        return functools.partial(_whole, what=what, name=name)
    if hint is bool:
        return functools.partial(_instance, kind=bool, what=what)
    if hint is bytes:
        return functools.partial(data, what=what)
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Union and type(None) in inner:
        some = _check_of(next(one for one in inner if one is not type(None)), what, name)
        return lambda value: None if value is None else some(value)
    if origin is list:
        return functools.partial(_list, each=_check_of(inner[0], what, name), what=what)
    if origin is tuple:
        parts = [_check_of(one, what, name) for one in inner]
        return lambda value: tuple(check(one) for check, one in zip(parts, value, strict=True))
    return lambda value: value


def _instance(value: object, kind: type, what: str) -> object:
    if type(value) is not kind:
        raise TypeError(f"{what} takes {kind.__name__}, and {value!r} is of type {type(value).__name__}")
    return value


def _whole(value: Any, what: str, name: str) -> int:
    if type(value) is not int:
        raise TypeError(f"{what} takes a whole number, and {value!r} is of type {type(value).__name__}")
    least, most = (-(2**31), 2**31 - 1) if name in _SIGNED else (0, 2**64 - 1 if name in _WIDE else 2**32 - 1)
    if not least <= value <= most:
        raise UsageError(f"{what} is {value}; it must be from {least} to {most}")
    return value


def data(value: Any, what: str) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"{what} takes bytes, and {type(value).__name__} was given")
    found = bytes(value)
    if len(found) > MOST_BYTES:
        raise ResourceError(f"{what} has {len(found):,} bytes; the most in one call is {MOST_BYTES:,}")
    return found


def _list(value: Iterable[Any], each: Check, what: str) -> list[Any]:
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise TypeError(f"{what} takes a list, and {value!r:.80} is of type {type(value).__name__}")
    found = list(value)
    if len(found) > MOST_ELEMENTS:
        raise ResourceError(f"{what} has {len(found):,} entries; the most in one call is {MOST_ELEMENTS:,}")
    return [each(one) for one in found]
