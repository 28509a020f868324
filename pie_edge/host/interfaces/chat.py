"""Conversations: their tokens, the tools in them, and what an answer is made of."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from pie_edge.errors import ResourceError, TemplateError, UsageError
from pie_edge.host.guest import Guest, Turns
from pie_edge.host.interfaces import ANSWER, Interface
from pie_edge.host.interfaces.encoding import Tokens, encoded
from pie_edge.tokenizer.formats import Formats, TokenDecoder
from pie_edge.tokenizer.formats.events import (
    Arguments,
    CallBegun,
    CallEnded,
    Event,
    Malformed,
    Mark,
    Reasoning,
    Text,
    joined,
)
from pie_edge.tokenizer.formats.parser import to_json
from pie_edge.tokenizer.messages import check_tools

_MOST_TOKENS = 4096


def _turns(guest: Guest) -> Turns:
    if guest.model.turns is None:
        raise TemplateError(
            f"{guest.model.facts.name} has no chat template; write the prompt as text, with model.encode, or run a chat model"
        )
    return guest.model.turns


def _turn(guest: Guest, role: str, text: str, thinking: bool | None) -> Tokens:
    turns = _turns(guest)
    if role == "system":
        return encoded(guest, text, lambda: turns.system(text, thinking))
    if thinking is not None:
        raise UsageError(
            f"{guest.name} switches thinking in a turn of the {role}; do it in the system's, or in the cue"
        )
    return encoded(guest, text, lambda: (turns.user if role == "user" else turns.assistant)(text))


def _conversation(guest: Guest, messages: str, tools: str | None, thinking: bool | None, cue: bool) -> Tokens:
    turns, given = _turns(guest), _list(guest, "messages", messages)
    known = tools_of(guest, tools)
    return encoded(guest, messages + (tools or ""), lambda: turns.conversation(given, known, thinking, cue))


def _equip(guest: Guest, tools: str, system: str | None, thinking: bool | None) -> Tokens:
    turns, known = _turns(guest), tools_of(guest, tools)
    return encoded(guest, tools + (system or ""), lambda: turns.equip(known, system, thinking))


def _answer(guest: Guest, answers: str) -> Tokens:
    turns, given = _turns(guest), _list(guest, "answers", answers)
    for number, one in enumerate(given):
        if not isinstance(one, dict) or not all(isinstance(one.get(key), str) for key in ("name", "content")):
            raise UsageError(
                f"{guest.name} gives {one!r:.80} as answer {number}; it is an object with the name of the call and the content"
            )
    if not given:
        raise UsageError(f"{guest.name} gives no answers; give one for each call of the turn")
    return encoded(guest, answers, lambda: turns.answer(given))


def formats(guest: Guest) -> Formats:
    """How the model writes its reasoning and its calls."""
    return Formats() if guest.model.turns is None else guest.model.turns.formats


def _new_decoder(guest: Guest, calls: bool, opened: bool, continued: bool, tools: str | None) -> int:
    guest.answers.check_room()
    known = tools_of(guest, tools)
    decoder = TokenDecoder(
        guest.model.tokenizer, formats(guest), calls=calls, inside=opened, continued=continued, tools=known
    )
    return guest.answers.add(decoder)


def _push(guest: Guest, decoder: int, tokens: list[int]) -> list[tuple[str, Any]]:
    if len(tokens) > _MOST_TOKENS:
        raise ResourceError(
            f"{guest.name} takes {len(tokens):,} tokens apart at once, the most is {_MOST_TOKENS:,}; push them in parts"
        )
    answer = guest.answers.find(decoder)
    return _shown(event for token in tokens for event in answer.push(token))


def _shown(events: Iterable[Event]) -> list[tuple[str, Any]]:
    """As the WIT has them; marks show nothing."""
    return [_case(event) for event in joined(event for event in events if not isinstance(event, Mark))]


def _case(event: Event) -> tuple[str, Any]:
    match event:
        case CallBegun():
            return "call-start", (event.index, event.name, event.id)
        case Arguments():
            return "arguments", (event.index, event.text)
        case CallEnded():
            return "call-end", (event.index, event.name, event.id, to_json(event.arguments))
        case Malformed():
            return "malformed", (event.index, event.text)
        case Reasoning():
            return "reasoning", event.text
        case Text() | Mark():
            return "text", event.raw


def tools_of(guest: Guest, text: str | None) -> list[Any]:
    """Raises UsageError for what is no list of tools."""
    tools = [] if text is None else _list(guest, "tools", text)
    check_tools(tools)
    return tools


def _list(guest: Guest, what: str, text: str) -> list[Any]:
    """Raises UsageError for what is no JSON list."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list):
        raise UsageError(f"{guest.name} gives {text!r:.80} as {what}; they are a list in JSON")
    return found


CHAT: dict[str, Interface] = {
    "chat": (
        {},
        {
            "available": lambda guest: guest.model.turns is not None,
            "prefix": lambda guest: (guest.model.turns or guest.model.tokenizer).prefix(),
            "preamble": lambda guest, thinking: list(_turns(guest).preamble(thinking)),
            "turn": _turn,
            "conversation": _conversation,
            "cue": lambda guest, thinking: list(_turns(guest).cue(thinking)),
            "seal": lambda guest: list(_turns(guest).seal()),
            "stop-tokens": lambda guest: sorted(guest.model.tokenizer.stop_tokens),
        },
    ),
    "tools": ({}, {"equip": _equip, "answer": _answer}),
    "formats": (
        {"decoder": (ANSWER, lambda guest, decoder: guest.answers.drop(decoder))},
        {
            "get": lambda guest: (formats(guest).calls, formats(guest).reasoning),
            "opens-reasoning": lambda guest, thinking: _turns(guest).opens_reasoning(thinking),
            "[static]decoder.create": _new_decoder,
            "[method]decoder.push": _push,
            "[method]decoder.flush": lambda guest, decoder: _shown(guest.answers.find(decoder).flush()),
        },
    ),
}
