"""Answers taken apart by the host."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from wit_world.imports import formats

from inferlet._events import Arguments, Call, CallStart, Event, Malformed, Reasoning, Text
from inferlet._wit_errors import checked

_CASES: dict[type, Callable[[Any], Event]] = {
    formats.Event_Text: Text,
    formats.Event_Reasoning: Reasoning,
    formats.Event_CallStart: lambda one: CallStart(one.index, one.name, one.id),
    formats.Event_Arguments: lambda one: Arguments(one.index, one.text),
    formats.Event_CallEnd: lambda one: Call(one.name, json.loads(one.arguments), one.id, one.index),
    formats.Event_Malformed: lambda one: Malformed(one.text, one.index),
}


class AnswerDecoder:
    def __init__(self, calls: bool, opened: bool, continued: bool, tools: str | None) -> None:
        self._handle = checked(formats.Decoder.create)(calls, opened, continued, tools)
        self._push = checked(self._handle.push)

    def push(self, tokens: list[int]) -> list[Event]:
        return _events(self._push(tokens))

    def flush(self) -> list[Event]:
        return _events(self._handle.flush())


def names() -> tuple[str, str]:
    found = formats.get()
    return found.calls, found.reasoning


opens_reasoning = checked(formats.opens_reasoning)


def _events(found: list[Any]) -> list[Event]:
    return [_CASES[type(one)](one.value) for one in found]
