"""Answers of text with tagged stretches in it: reasoning between tags, calls after a marker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pie_edge.tokenizer.formats.parser import BrokenError, Parser
from pie_edge.tokenizer.formats.pythonic import python_calls
from pie_edge.tokenizer.formats.stream import Stream, Wait

_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class Tags:
    """Of reasoning. ``others`` are tags that mean nothing to whoever reads the answer."""

    open: str
    close: str
    others: tuple[str, ...] = ()


class Tagged(Parser):
    """Reasoning, and no calls: formats of calls derive from it."""

    openers: ClassVar[tuple[str, ...]] = ()
    """What begins a call."""
    closers: ClassVar[tuple[str, ...]] = ()
    """What ends it; where there is none, the answer's end or the next opener does."""
    inner: ClassVar[tuple[str, ...]] = ()
    """Markers inside of a call."""
    bare: ClassVar[bool] = False
    """Whether an answer that begins with a call's JSON object is a call without a marker."""

    def __init__(
        self,
        stream: Stream,
        tags: Tags | None = None,
        inside: bool = False,
        controls: frozenset[str] = frozenset(),
        tools: Mapping[str, Any] | None = None,
    ) -> None:
        """``inside``: the prompt has opened the reasoning already."""
        super().__init__(stream, controls, tools)
        self._tags = tags
        self._inside = inside and tags is not None
        others = (tags.open, *tags.others) if tags else ()
        self._needles = self.needles(*self.openers, *others)
        self._ends = self.needles(*self.openers, *self.closers)

    def run(self) -> Wait[None]:
        if self._inside:
            yield from self._reasoning()
        marker: str | None = None
        if self.bare and (yield from self._begins_with_call()):
            marker = yield from self._read_call("")
        while marker != "":
            marker = marker or (yield from self.until(self._needles, self.text))
            marker = (yield from self._marked(marker)) if marker else ""

    def _marked(self, marker: str) -> Wait[str | None]:
        """What a marker begins; gives the marker that ended it, if that begins something itself."""
        if marker in self.openers:
            return (yield from self._read_call(marker))
        self.mark(marker)
        if self._tags and marker in (self._tags.open, *self._tags.others):
            yield from self.space()
            if marker == self._tags.open:
                yield from self._reasoning()
        return None

    def _reasoning(self) -> Wait[None]:
        """Up to its end, whatever other control tokens are in it: a model may think of them."""
        assert self._tags is not None
        close = self.needles(self._tags.close)
        while (marker := (yield from self.until(close, self.reason))) not in ("", self._tags.close):
            self.reason(marker)
        self.mark(marker)
        yield from self.space()

    def _read_call(self, marker: str) -> Wait[str | None]:
        self.record()
        self.mark(marker)
        try:
            yield from self.space()
            yield from self.read_call(marker)
        except BrokenError:
            return (yield from self._recover())
        self.keep()
        return (yield from self._close())

    def read_call(self, marker: str) -> Wait[None]:
        """The calls after a marker, and the space after it. Raises BrokenError for what is none."""
        yield from self.json_calls()

    def read_python(self) -> Wait[None]:
        """Calls in Python, up to what ends them."""
        parts: list[str] = []

        def read(raw: str) -> None:
            parts.append(raw)
            self.mark(raw)

        if (yield from self.until(self._ends, read)):
            self.stream.put_back()
        for name, arguments in python_calls("".join(parts)):
            self.call(name, arguments)

    def _recover(self) -> Wait[str | None]:
        """Up to what ends the call, it is text."""
        rest: list[str] = []
        marker = yield from self.until(self._ends, rest.append)
        ends_here = marker in self.closers
        self.malformed("".join(rest) + (marker if ends_here else ""))
        return None if ends_here or not marker else marker

    def _close(self) -> Wait[str | None]:
        """Whatever stands between a call and its end is text."""
        yield from self.space()
        if not self.closers:
            return None
        marker = yield from self.until(self._ends, self.text)
        if marker not in self.closers:
            return marker or None
        self.mark(marker)
        yield from self.space()
        return None

    def _begins_with_call(self) -> Wait[bool]:
        """Whether the text begins with an object that has a name and arguments; nothing is read."""
        at = yield from self.after_space(0)
        if (yield from self.stream.peek(at)) == "[":
            at = yield from self.after_space(at + 1)
        if (yield from self.stream.peek(at)) != "{":
            return False
        keys: list[str] = []
        while len(keys) < 3:  # a type may stand beside the name
            key, at = yield from self._string_at((yield from self.after_space(at + 1)))
            keys.append(key)
            at = yield from self.after_space(at)
            if (yield from self.stream.peek(at)) != ":":
                return False
            at = yield from self.after_space(at + 1)
            if key in ('"arguments"', '"parameters"'):
                return '"name"' in keys and (yield from self.stream.peek(at)) == "{"
            if key not in ('"name"', '"type"'):
                return False
            at = yield from self.after_space((yield from self._string_at(at))[1])
            if (yield from self.stream.peek(at)) != ",":
                return False
        return False

    def after_space(self, at: int) -> Wait[int]:
        while (yield from self.stream.peek(at)).isspace():
            at += 1
        return at

    def _string_at(self, at: int) -> Wait[tuple[str, int]]:
        """A short string in quotes, and where it ends; empty if there is none."""
        text = yield from self.stream.peek(at)
        while text.startswith('"') and len(text) < _LONGEST_NAME:
            character = yield from self.stream.peek(at + len(text))
            if not character:
                break
            text += character
            if character == '"':
                return text, at + len(text)
        return "", at
