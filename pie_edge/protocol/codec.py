"""Messages to bytes and back. What isn't exactly a message is refused: an unknown op or field, one that lacks, another type."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable
from typing import Any, Generic, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgpack

from pie_edge.errors import ProtocolError, UsageError
from pie_edge.protocol.messages import FromServer, ToServer

T = TypeVar("T")
LONGEST = 20 * 2**20
"""Bytes of one message: an input of 16 MiB has room, with what may come beside it."""
PART = 2**20
"""Bytes of a file in one message."""
_MOST = 2**64
_Reader = Callable[[Any], Any]


def encode(message: Any) -> bytes:
    """Raises UsageError for text without a UTF-8 form, or more than a message holds."""
    try:
        data = msgpack.packb(_written(message))
    except (UnicodeEncodeError, OverflowError, ValueError, TypeError) as error:
        raise UsageError(f"{_op(type(message))} can't be sent: {error}") from None
    assert isinstance(data, bytes)
    if len(data) > LONGEST:
        raise UsageError(
            f"{_op(type(message))} has {len(data):,} bytes, the most is {LONGEST:,}; send less, or in parts"
        )
    return data


class Decoder(Generic[T]):
    """Of the messages of one direction."""

    def __init__(self, kinds: Any, pairs: Callable[[list[tuple[Any, Any]]], Any] | None = None) -> None:
        """``pairs`` makes a map of its pairs, in place of what the last of a key's values is."""
        self._pairs = pairs
        self._readers = {_op(kind): _record(kind) for kind in get_args(kinds)}

    def __call__(self, data: bytes | memoryview) -> T:
        """Raises ProtocolError, with the id of the request where there is one."""
        if len(data) > LONGEST:
            raise ProtocolError(f"a message of {len(data):,} bytes, the most is {LONGEST:,}")
        value = self._map(data)
        op = value.pop("op", None)
        reader = self._readers.get(op) if isinstance(op, str) else None
        try:
            if reader is None:
                raise _WrongError(f"a message with op {op!r:.80}, which is none of {', '.join(self._readers)}")
            message: T = reader(value)
        except _WrongError as wrong:
            said = str(wrong) if reader is None else f"{op}: {wrong}"
            raise ProtocolError(said, _id(value)) from None
        return message

    def check(self, message: Any) -> None:
        """What the other side would refuse, before it is sent. Raises UsageError naming the field."""
        op = _op(type(message))
        try:
            self._readers[op]({name: getattr(message, name) for name in message.__slots__})
        except _WrongError as wrong:
            raise UsageError(f"{op}: {wrong}") from None

    def _map(self, data: bytes | memoryview) -> dict[Any, Any]:
        try:
            value = msgpack.unpackb(data, object_pairs_hook=self._pairs)
        except _WrongError as wrong:
            raise ProtocolError(f"a message with {wrong}") from None
        except Exception as error:  # msgpack raises its own kinds, ValueError and others
            raise ProtocolError(f"a message that is no MessagePack: {str(error) or type(error).__name__}") from None
        if not isinstance(value, dict):
            raise ProtocolError(f"a message is a map, and {type(value).__name__} came")
        return value


class _WrongError(Exception):
    """What is wrong with a value."""


def _unambiguous(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """Of a key that comes twice nobody could say which was meant."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _WrongError(f"the field {next(key for key in keys if keys.count(key) > 1)!r:.80} twice")
    return found


def _id(value: dict[Any, Any]) -> int:
    """Of a request that isn't right otherwise; 0 if it has none."""
    number = value.get("id")
    return number if type(number) is int and 0 < number < _MOST else 0


def _op(kind: type) -> str:
    return kind.__name__.lower()


def _written(message: Any) -> dict[str, Any]:
    fields = {name: _plain(getattr(message, name)) for name in message.__slots__}
    return {"op": _op(type(message)), **fields}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if dataclasses.is_dataclass(value):
        return {one.name: _plain(getattr(value, one.name)) for one in dataclasses.fields(value)}
    return value


def _record(kind: Any) -> _Reader:
    hints = get_type_hints(kind)
    readers = {name: _reader(hint) for name, hint in hints.items()}
    required = {
        one.name
        for one in dataclasses.fields(kind)
        if one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING
    }

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _WrongError(f"{value!r:.80} is no map")
        if not value.keys() <= readers.keys():
            raise _WrongError(f"there is no field {next(iter(value.keys() - readers.keys()))!r:.80}")
        if not required <= value.keys():
            raise _WrongError(f"{', '.join(sorted(required - value.keys()))} is missing")
        return kind(**{name: _field(name, readers[name], one) for name, one in value.items()})

    return read


def _field(name: str, read: _Reader, value: Any) -> Any:
    try:
        return read(value)
    except _WrongError as wrong:
        raise _WrongError(f"{name}: {wrong}") from None


def _reader(hint: Any) -> _Reader:
    origin, of = get_origin(hint), get_args(hint)
    if origin is types.UnionType:
        inner = _reader(of[0])
        return lambda value: None if value is None else inner(value)
    if origin is Literal:
        return lambda value: _one_of(of, value)
    if origin is tuple:
        one = _reader(of[0])
        return lambda value: tuple(map(one, _of(list, value)))
    if origin is dict:
        number = _reader(of[1])
        return lambda value: {_of(str, key): number(one) for key, one in _of(dict, value).items()}
    if dataclasses.is_dataclass(hint):
        return _record(hint)
    if hint is int:
        return _whole
    if hint is float:
        return _number
    return lambda value: _of(hint, value)


def _of(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise _WrongError(f"{value!r:.80} is not of type {kind.__name__}")
    return value


def _one_of(words: tuple[str, ...], value: Any) -> Any:
    if value not in words:
        raise _WrongError(f"{value!r:.80} is none of {', '.join(words)}")
    return value


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _MOST:
        raise _WrongError(f"{value!r:.80} is no whole number from 0 to {_MOST - 1}")
    return value


def _number(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < float("inf"):
        raise _WrongError(f"{value!r:.80} is no number")
    return float(value)


to_server: Decoder[ToServer] = Decoder(ToServer, _unambiguous)
from_server: Decoder[FromServer] = Decoder(FromServer)
