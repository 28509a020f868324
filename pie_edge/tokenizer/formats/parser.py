"""What the formats share: reading with account of every character, and calls written as JSON objects."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from pie_edge.tokenizer.formats.events import Arguments, CallBegun, CallEnded, Event, Malformed, Mark, Reasoning, Text
from pie_edge.tokenizer.formats.stream import Needles, Stream, Wait, needles

_NAMES, _ARGUMENTS, _IDS = ("name", "function"), ("arguments", "parameters"), ("id", "call_id", "tool_call_id")


class BrokenError(Exception):
    """What began like a call is none."""


class Parser:
    """Reads a stream and says what is in it. ``run`` is the format: it ends with the stream."""

    def __init__(
        self, stream: Stream, controls: frozenset[str] = frozenset(), tools: Mapping[str, Any] | None = None
    ) -> None:
        """``controls`` come as control tokens. ``tools`` are the parameters of each function, where they are known."""
        self.stream = stream
        self.events: list[Event] = []
        self.tools = tools or {}
        self._controls = controls
        self._record: list[str] | None = None
        self._index = 0
        self._begun: int | None = None

    def run(self) -> Wait[None]:
        raise NotImplementedError

    def needles(self, *names: str) -> Needles:
        return needles(names, self._controls)

    # Saying what was read.

    def say(self, event: Event) -> None:
        if self._record is not None:
            self._record.append(event.raw)
        self.events.append(event)

    def mark(self, raw: str) -> None:
        if raw:
            self.say(Mark(raw))

    def begin(self, name: str, identity: str | None, raw: str = "") -> None:
        self._begun = self._index
        self.say(CallBegun(raw, self._index, name, identity))

    def argue(self, raw: str, text: str | None = None) -> None:
        self.say(Arguments(raw, self._index, raw if text is None else text))

    def end(self, name: str, identity: str | None, arguments: str) -> None:
        """Raises BrokenError if the arguments are no JSON object."""
        self.say(CallEnded("", self._index, name, identity, as_object(arguments)))
        self._index += 1
        self._begun = None
        self._record = []  # what follows a whole call is no part of it

    def call(self, name: str, arguments: Mapping[str, Any]) -> None:
        """A whole call, whose notation was read already."""
        text = to_json(arguments)
        self.begin(check_name(name), None)
        self.argue("", text)
        self.end(name, None, text)

    def record(self) -> None:
        """From here on what is read may be a malformed call."""
        self._record = []

    def keep(self) -> None:
        """What was read is sound."""
        self._record = None

    def malformed(self, rest: str) -> None:
        """What was recorded, and ``rest``, is no call."""
        self.events.append(Malformed(rest, self._begun, "".join(self._record or ()) + rest))
        self._index += self._begun is not None
        self._begun = self._record = None

    # Reading.

    def space(self) -> Wait[None]:
        while (yield from self.stream.peek()).isspace():
            self.mark(self.stream.take())

    def passes(self, word: str) -> Wait[bool]:
        """Whether the text goes on with ``word``, which is read then."""
        if word in self._controls:
            if not (yield from self.stream.take_mark(word)):
                return False
            self.mark(word)
            return True
        if not (yield from self.stream.starts(word)):
            return False
        self.mark(self.stream.take(len(word)))
        return True

    def expect(self, word: str) -> Wait[None]:
        if not (yield from self.passes(word)):
            broken(f"no {word}")

    def until(self, needles: Needles, say: Callable[[str], None]) -> Wait[str]:
        """Says the text before a marker, in pieces; the marker, which isn't said. None is there at the end."""
        while True:
            text, marker = yield from self.stream.find(needles)
            if text:
                say(text)
            if marker or not text:
                return marker

    def text(self, raw: str) -> None:
        self.say(Text(raw))

    def reason(self, raw: str) -> None:
        self.say(Reasoning(raw))

    # Calls as JSON.

    def json_calls(self) -> Wait[None]:
        """Objects with a name and arguments, one or several, in a list or not."""
        yield from self.space()
        in_list = yield from self.passes("[")
        count = 0
        while True:
            yield from self.space()
            if (yield from self.stream.peek()) == "{":
                yield from self._json_call()
                count += 1
            elif in_list and (yield from self.passes("]")):
                return
            elif not (count and ((yield from self.passes(",")) or (yield from self.passes(";")))):
                if in_list or not count:
                    broken("no object")
                return

    def _json_call(self) -> Wait[None]:
        name: str | None = None
        identity: str | None = None
        arguments: str | None = None
        yield from self.expect("{")
        while True:
            yield from self.space()
            key = from_json((yield from self.json_string(self.mark)))
            yield from self.space()
            yield from self.expect(":")
            yield from self.space()
            if key in _ARGUMENTS and name is not None and (yield from self.stream.peek()) == "{":
                self.begin(name, identity)
                arguments = yield from self.json_value(self.argue)
            else:
                value = yield from self.json_value(self.mark)
                if key in _ARGUMENTS:
                    arguments = value
                elif key in _NAMES:
                    name = check_name(from_json(value))
                elif key in _IDS:
                    identity = check_name(str(from_json(value)))
            yield from self.space()
            if (yield from self.passes("}")):
                break
            yield from self.expect(",")
        self._finish(name, identity, arguments)

    def _finish(self, name: str | None, identity: str | None, arguments: str | None) -> None:
        if name is None:
            broken("no name")
        if self._begun is None:
            text = "{}" if arguments in (None, "null") else arguments
            if text.startswith('"'):  # an object as JSON inside of JSON
                text = to_json(as_object(str(from_json(text)) or "{}"))
            as_object(text)
            self.begin(name, identity)
            self.argue("", text)
            arguments = text
        self.end(name, identity, str(arguments))

    def json_value(self, say: Callable[[str], None]) -> Wait[str]:
        first = yield from self.stream.peek()
        if first == '"':
            return (yield from self.json_string(say))
        if first in ("{", "["):
            return (yield from self._json_nested(say))
        read = ""
        while (character := (yield from self.stream.peek())) and (character.isalnum() or character in "+-."):
            read += self.stream.take()
            say(character)
        return read or broken("no value")

    def _json_nested(self, say: Callable[[str], None]) -> Wait[str]:
        read: list[str] = []
        depth = 0
        while True:
            character = yield from self.stream.peek()
            if character == '"':
                read.append((yield from self.json_string(say)))
                continue
            read.append(self.stream.take() if character else broken("no end"))
            say(character)
            depth += (character in "{[") - (character in "}]")
            if depth == 0:
                return "".join(read)

    def json_string(self, say: Callable[[str], None]) -> Wait[str]:
        if (yield from self.stream.peek()) != '"':
            broken("no string")
        read = [self.stream.take()]
        say(read[0])
        while read[-1] != '"' or len(read) == 1:
            character = yield from self.stream.peek()
            if character == "\\":
                character += yield from self.stream.peek(1)
            read.append(self.stream.take(len(character)) if character else broken("no end"))
            say(read[-1])
        return "".join(read)


def broken(reason: str) -> NoReturn:
    raise BrokenError(reason)


def check_name(name: Any) -> str:
    if not isinstance(name, str) or not name or not name.isprintable():
        broken(f"no name of a function: {name!r}")
    return name


def from_json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=broken, parse_float=_nearest)
    except (ValueError, RecursionError):
        broken("no JSON")


def _nearest(number: str) -> float:
    """Of the double-precision numbers: JSON has larger ones, as 1e999, which would become infinity, and that it doesn't have."""
    found = float(number)
    return found if math.isfinite(found) else math.copysign(sys.float_info.max, found)


def to_json(value: Any) -> str:
    """As models read it, unless a lone surrogate has no bytes."""
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text) else json.dumps(value)


def as_object(text: str) -> dict[str, Any]:
    found = from_json(text)
    return found if isinstance(found, dict) else broken("no object")
