"""Text that comes in pieces, read by coroutines that sleep where they need more of it.

So each format is written as if all of its text were there, and works however the text is cut. A marker that is a control token
comes out of band, at its place in the text: text that merely spells it isn't taken for it.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Wait: TypeAlias = Generator[None, None, T]
"""Yields when it needs more text; its value is what it read."""


@dataclass(frozen=True)
class Needles:
    """Markers to look for. ``controls`` are those that come as control tokens, and never as text."""

    names: frozenset[str]
    controls: frozenset[str] = frozenset()

    @cached_property
    def pattern(self) -> re.Pattern[str] | None:
        texts = sorted(self.names - self.controls, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, texts))) if texts else None

    @cached_property
    def beginnings(self) -> frozenset[str]:
        """What could become a marker."""
        return frozenset(text[:n] for text in self.names - self.controls for n in range(1, len(text)))

    @cached_property
    def longest(self) -> int:
        return max(map(len, self.beginnings), default=0)


class Stream:
    """``feed`` and ``feed_mark`` put text and control tokens in; ``close`` says that there is no more."""

    def __init__(self) -> None:
        self._text = ""
        self._at = 0
        self._marks: deque[tuple[int, str]] = deque()
        self._closed = False
        self._found = ("", False)

    def feed(self, text: str) -> None:
        self._drop_read()
        self._text += text

    def feed_mark(self, name: str) -> None:
        self._drop_read()
        self._marks.append((len(self._text), name))
        self._text += name

    def close(self) -> None:
        self._closed = True

    def peek(self, index: int = 0) -> Wait[str]:
        """The character so far ahead; nothing at the end, or at a control token."""
        while True:
            at = self._at + index
            if self._marks and at >= self._marks[0][0]:
                return ""
            if at < len(self._text):
                return self._text[at]
            if self._closed:
                return ""
            yield

    def take(self, count: int = 1) -> str:
        """Characters that were peeked at."""
        taken = self._text[self._at : self._at + count]
        self._at += count
        return taken

    def starts(self, word: str) -> Wait[bool]:
        """Whether the text goes on with ``word``."""
        for index, character in enumerate(word):
            if (yield from self.peek(index)) != character:
                return False
        return True

    def find(self, needles: Needles) -> Wait[tuple[str, str]]:
        """``(text, marker)``: text up to a marker, and the marker; or some text and no marker, as soon as it is certain; both
        empty at the end. Whatever comes as a control token counts."""
        while True:
            end = self._marks[0][0] if self._marks else len(self._text)
            hit = needles.pattern.search(self._text, self._at, end) if needles.pattern else None
            if hit is not None and not self._may_grow(hit.start(), needles):
                self._found = (hit[0], False)
                return self.take(hit.start() - self._at), self.take(len(hit[0]))
            if self._marks:
                self._found = (self._marks.popleft()[1], True)
                return self.take(end - self._at), self.take(len(self._found[0]))
            certain = end if self._closed else end - self._could_become(needles)
            if certain > self._at:
                return self.take(certain - self._at), ""
            if self._closed:
                return "", ""
            yield

    def put_back(self) -> None:
        """The marker that was found last is there again."""
        name, is_control = self._found
        self._at -= len(name)
        if is_control:
            self._marks.appendleft((self._at, name))

    def take_mark(self, name: str) -> Wait[bool]:
        """Whether this control token comes next, which is taken then."""
        if (yield from self.peek()) or not self._marks or self._marks[0] != (self._at, name):
            return False
        self._marks.popleft()
        self._at += len(name)
        return True

    def _may_grow(self, start: int, needles: Needles) -> bool:
        """Whether a marker that was found there may be the beginning of a longer one."""
        if self._closed or self._marks or len(self._text) - start > needles.longest:
            return False
        return self._text[start:] in needles.beginnings

    def _could_become(self, needles: Needles) -> int:
        """How many of the last characters may be the beginning of a marker."""
        most = min(needles.longest, len(self._text) - self._at)
        tails = (n for n in range(most, 0, -1) if self._text[-n:] in needles.beginnings)
        return next(tails, 0)

    def _drop_read(self) -> None:
        self._text = self._text[self._at :]
        self._marks = deque((place - self._at, name) for place, name in self._marks)
        self._at = 0


def needles(names: Iterable[str], controls: frozenset[str]) -> Needles:
    known = frozenset(names)
    return Needles(known, known & controls)
