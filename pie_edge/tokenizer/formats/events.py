"""What a model's answer is made of, as it comes: text, reasoning, and calls of tools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Text:
    """Of the answer itself. ``raw`` of an event is the stretch of the stream that it stands for: all of them joined are the
    stream."""

    raw: str

    @property
    def text(self) -> str:
        return self.raw


@dataclass(frozen=True, slots=True)
class Reasoning:
    """What the model thinks before it answers."""

    raw: str

    @property
    def text(self) -> str:
        return self.raw


@dataclass(frozen=True, slots=True)
class Mark:
    """A marker, or the space and notation around a call: nothing to show."""

    raw: str


@dataclass(frozen=True, slots=True)
class CallBegun:
    """A call of ``name``. Calls count from 0. ``id`` is the model's own; it may come with ``CallEnded``, or never."""

    raw: str
    index: int
    name: str
    id: str | None


@dataclass(frozen=True, slots=True)
class Arguments:
    """More of the arguments of a call, as JSON text."""

    raw: str
    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnded:
    """A whole call. ``arguments`` are what the pieces of ``Arguments`` joined are in JSON."""

    raw: str
    index: int
    name: str
    id: str | None
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Malformed:
    """What began like a call and is none: ``text`` is all of it, markers included, to be kept as text. ``index`` is that of
    the call that had begun, if one had."""

    raw: str
    index: int | None
    text: str


Event: TypeAlias = Text | Reasoning | Mark | CallBegun | Arguments | CallEnded | Malformed


def joined(events: Iterable[Event]) -> list[Event]:
    """The events with neighbours of a kind made one: the same however the stream was cut."""
    found: list[Event] = []
    for event in events:
        one = _one(found[-1], event) if found else None
        if one is None:
            found.append(event)
        else:
            found[-1] = one
    return found


def _one(first: Event, second: Event) -> Event | None:
    match first, second:
        case (Text(), Text()) | (Reasoning(), Reasoning()) | (Mark(), Mark()):
            return replace(first, raw=first.raw + second.raw)
        case Arguments(), Arguments() if first.index == second.index:
            return replace(first, raw=first.raw + second.raw, text=first.text + second.text)
        case _:
            return None
