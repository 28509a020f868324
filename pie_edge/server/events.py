"""Messages of the inferlets ``completion`` and ``embedding`` → events. A message is a JSON list of events, each a list of what it
is and its fields:

    ["b", prompt, cached]                                   Began
    ["p", choice, text], ["p", choice, text, logprobs]      Piece
    ["t", choice, text]                                     Thought
    ["c", choice, index, id or null, name]                  CallBegan
    ["a", choice, index, text]                              CallArguments
    ["e", choice, reason, stop string or null]              Ended
    ["g", generated]                                        Counted
    ["k", tokens]                                           Kept
    ["u", prompt, cached, generated, reasoning]             Usage
    ["n", tokens]                                           a count, or how many tokens ``embedding`` has read: its last
    ["v", floats]                                           a vector: little-endian float32 in base64
    ["x", code, message, tokens or null, limit or null]     the error that it was refused with, or that ended it; of
                                                            ``embedding`` followed by the number of its text, or null

A token's log probability is ``[token, its bytes as Latin-1, log probability or null, [[token, bytes, log probability], …]]``.
"""

from __future__ import annotations

import base64
import json
import math
import secrets
import string
import sys
from array import array
from collections.abc import Callable, Iterator
from typing import Any

from pie_edge.errors import ContextOverflow, InferletFailed, PieError, by_code
from pie_edge.server.generation import (
    Began,
    CallArguments,
    CallBegan,
    Counted,
    Ended,
    Event,
    Kept,
    Piece,
    Thought,
    TokenLogprob,
    Usage,
)

_REASONS = frozenset({"stop", "stop-string", "length", "context", "calls"})
_ID = 9
"""Characters of a call's id: Mistral's templates take ids of that many letters and digits alone."""


def read(message: str) -> Iterator[Event]:
    """Raises what the inferlet was refused with, and InferletFailed for what is no such message."""
    for event in _list(message):
        match event:
            case ["x", str(code), str(text), tokens, limit]:
                raise _error(code, text, tokens, limit)
            case [str(kind), *fields] if kind in _KINDS:
                yield _made(kind, fields)
            case _:
                raise _broken(event)


def read_count(message: str) -> int:
    """The answer to ``do: count``."""
    match _list(message):
        case [["n", int(tokens)]]:
            return tokens
        case [["x", str(code), str(text), tokens, limit]]:
            raise _error(code, text, tokens, limit)
        case found:
            raise _broken(found)


def read_vectors(message: str) -> Iterator[array[float] | int]:
    """Vectors of ``embedding``, and at last how many tokens it has read. Raises what it was refused with."""
    for event in _list(message):
        match event:
            case ["n", int(tokens)]:
                yield tokens
            case ["v", str(text)]:
                yield _floats(text)
            case ["x", str(code), str(text), tokens, limit, part]:
                raise _error(code, text, tokens, limit, part)
            case _:
                raise _broken(event)


def _floats(text: str) -> array[float]:
    found = array("f")
    try:
        found.frombytes(base64.b64decode(text, validate=True))
    except ValueError:
        raise _broken(text) from None
    if sys.byteorder == "big":
        found.byteswap()
    return found


def _list(message: str) -> list[Any]:
    try:
        found = json.loads(message)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list):
        raise _broken(message)
    return found


def _made(kind: str, fields: list[Any]) -> Event:
    try:
        return _KINDS[kind](*fields)
    except (TypeError, ValueError, AttributeError, OverflowError):
        raise _broken([kind, *fields]) from None


def _error(code: str, text: str, tokens: Any, limit: Any, part: Any = None) -> PieError:
    kind = by_code(code)
    if kind is not ContextOverflow:
        return kind(text)
    try:
        return ContextOverflow(text, *(None if count is None else _whole(count) for count in (tokens, limit, part)))
    except ValueError:
        return _broken(["x", code, text, tokens, limit, part])


def _broken(what: object) -> InferletFailed:
    return InferletFailed(f"an inferlet of the server sent what is no event: {what!r:.200}")


def _whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(value)
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _piece(choice: Any, text: Any, logprobs: Any = ()) -> Piece:
    return Piece(_whole(choice), _text(text), tuple(map(_logprob, logprobs)))


def _logprob(entry: Any) -> TokenLogprob:
    token, data, logprob, top = entry
    likeliest = tuple(TokenLogprob(_whole(t), d.encode("latin-1"), _log(p)) for t, d, p in top)
    return TokenLogprob(_whole(token), data.encode("latin-1"), None if logprob is None else _log(logprob), likeliest)


def _log(value: Any) -> float:
    """Of a probability. No answer's JSON has a place for what is none."""
    found = float(value)
    if not found < math.inf:
        raise ValueError(value)
    return found


def _call(choice: Any, index: Any, id: Any, name: Any) -> CallBegan:
    letters = string.ascii_letters + string.digits
    known = "".join(secrets.choice(letters) for _ in range(_ID)) if id is None else _text(id)
    return CallBegan(_whole(choice), _whole(index), known, _text(name))


def _ended(choice: Any, reason: Any, stopped_by: Any) -> Ended:
    if reason not in _REASONS:
        raise ValueError(reason)
    return Ended(_whole(choice), reason, None if stopped_by is None else _text(stopped_by))


_KINDS: dict[str, Callable[..., Event]] = {
    "b": lambda prompt, cached: Began(_whole(prompt), _whole(cached)),
    "p": _piece,
    "t": lambda choice, text: Thought(_whole(choice), _text(text)),
    "c": _call,
    "a": lambda choice, index, text: CallArguments(_whole(choice), _whole(index), _text(text)),
    "e": _ended,
    "g": lambda generated: Counted(_whole(generated)),
    "k": lambda tokens: Kept(tuple(map(_whole, tokens))),
    "u": lambda *counts: Usage(*map(_whole, counts)),
}
