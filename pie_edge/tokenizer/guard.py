"""Keeps control tokens that users write in their text from becoming control tokens.

A template joins its own markers and the users' text into one string, in which they look alike. So before rendering, a
private character is put between the characters of every marker inside users' text. The template sees the text otherwise
unchanged, can strip, split and test it; whatever marker it writes itself stays whole. ``Tokenizer.encode_guarded`` then
takes whole markers for control tokens, and drops the private characters.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pie_edge.tokenizer.tokenizer import Tokenizer

_PRIVATE = range(0xF0000, 0xFFFFE)


class Guard:
    """``character`` occurs nowhere in ``values`` nor in ``source``, not even escaped."""

    def __init__(self, tokenizer: Tokenizer, source: str, *values: Any) -> None:
        self._markers = tokenizer.markers
        self._control = frozenset(tokenizer.control_tokens.values())
        taken = "".join([source, *_strings(values)])
        self.character = next(c for c in map(chr, _PRIVATE) if c not in taken and _escaped(c) not in taken)

    def protect(self, value: Any, keep: Collection[str] = ()) -> Any:
        """A copy of a JSON-like value with the markers in all its strings guarded, except those in ``keep``."""
        if isinstance(value, str):
            return self._protect(value, keep)
        if isinstance(value, Mapping):
            return {self.protect(key, keep): self.protect(item, keep) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.protect(item, keep) for item in value]
        return value

    def rendered(self, text: str) -> str:
        """A rendering with the guards that a template escaped (JSON in ASCII) put back."""
        return text.replace(_escaped(self.character), self.character)

    def _protect(self, text: str, keep: Collection[str]) -> str:
        parts: list[str] = []
        done = 0
        for start, end, token in self._markers.spans(text):
            marker = text[start:end]
            if token in self._control and marker not in keep:
                parts += [text[done:start], self.character.join(marker)]
                done = end
        parts.append(text[done:])
        # What follows in the rendering could complete a marker that the text only begins.
        if self._markers.is_broken_at_end(text):
            parts.append(self.character)
        return "".join(parts)


def _escaped(character: str) -> str:
    return json.dumps(character)[1:-1]


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _strings(key)
            yield from _strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)
