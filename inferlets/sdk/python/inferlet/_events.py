"""What an answer is made of, as it comes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Text:
    """More of the answer itself."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """More of what the model thinks before it answers."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """A call of the tool ``name`` begins. Calls of an answer count from 0."""

    index: int
    name: str
    id: str | None


@dataclass(frozen=True, slots=True)
class Arguments:
    """More of the arguments of a call, as JSON text."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A whole call. ``id`` is the model's own, if it gives any."""

    name: str
    arguments: dict[str, Any]
    id: str | None = None
    index: int = 0


@dataclass(frozen=True, slots=True)
class Malformed:
    """What began like a call and is none: all of its text. ``index`` is that of the call, if one had begun."""

    text: str
    index: int | None


Event: TypeAlias = Text | Reasoning | CallStart | Arguments | Call | Malformed
