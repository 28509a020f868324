"""Functions that the model may call: it is told of them, calls them in its own format, and is given what they return.

tokens = chat.prefix() + tools.equip(TOOLS) + chat.user("…") + chat.cue()
… the model answers; tools.Decoder(TOOLS) finds a Call in that …
tokens += tools.answer((call, "sunny")) + chat.cue()
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from inferlet import _check, reasoning
from inferlet._events import Arguments, Call, CallStart, Event, Malformed, Reasoning, Text
from inferlet._host import host
from inferlet.errors import UsageError
from inferlet.grammar import Grammar, Matcher

__all__ = [
    "Arguments",
    "Call",
    "CallStart",
    "Decoder",
    "Event",
    "Malformed",
    "Reasoning",
    "Text",
    "answer",
    "called",
    "equip",
    "format",
    "matcher",
]


def format() -> str:
    """How the model writes calls: ``hermes``, ``llama``, ``mistral``, ``harmony``, ``gemma``, ``pythonic``, ``json-list``, or
    ``none``."""
    return host().formats()[0]


def equip(tools: Iterable[Mapping[str, Any]], system: str | None = None, *, thinking: bool | None = None) -> list[int]:
    """What tells the model of its tools, right after ``chat.prefix``, in place of ``chat.system`` or ``chat.preamble``.

    A tool is as OpenAI's API has it: ``{"type": "function", "function": {"name": …, "description": …, "parameters": {…}}}``.
    Raises TemplateError where the template has no place for tools, or none by itself, and for what is no tool.
    """
    text = None if system is None else _check.text(system, "tools.equip")
    return host().tools_equip(_check.json_list(tools, "tools.equip"), text, _check.switch(thinking, "tools.equip"))


def answer(*answers: tuple[Call | str, Any]) -> list[int]:
    """Closes the model's own turn and appends what its calls gave: pairs of a call, or a tool's name, and an answer, which is a
    text, or becomes one as JSON. The turn's calls are answered together.

    Raises TemplateError for several where the model calls one at a time.
    """
    return host().tools_answer(_check.json_text([_answer(one) for one in answers], "tools.answer"))


def matcher(
    tools: Iterable[Mapping[str, Any]], choice: str = "auto", *, parallel: bool = True, thinking: bool | None = None
) -> Matcher:
    """For ``Context.generate(grammar=…)``: the answer's calls are in the model's own format, of these tools, and their arguments
    valid by the tools' parameters. ``Decoder`` reads all of them.

    With ``auto`` the answer may be a text, or have one before its calls; with ``required`` it calls some tool, or the one whose
    name ``choice`` is; more than one only with ``parallel``. A model that thinks may do that first; ``thinking`` is what the cue
    was given. Raises GrammarError for parameters of a tool that is ``strict`` which can't be enforced: those of others are then
    any object. Raises Unsupported where the model has no format of calls, UsageError for a name that no tool has.
    """
    text = _check.json_list(tools, "tools.matcher")
    name = None if choice in ("auto", "required") else _check.text(choice, "tools.matcher")
    known = _check.switch(thinking, "tools.matcher")
    return Grammar(host().tools_grammar(text, choice, name, bool(parallel), known)).matcher()


def called(tokens: Iterable[int], *, thinking: bool | None = None) -> list[str]:
    """The names of what an answer calls."""
    decoder = Decoder(thinking=thinking)
    events = decoder.push(tokens) + decoder.flush()
    return [event.name for event in events if isinstance(event, Call)]


def _answer(given: object) -> dict[str, Any]:
    if not isinstance(given, tuple) or len(given) != 2 or not isinstance(given[0], Call | str):
        raise UsageError(f"tools.answer takes pairs of a Call, or a tool's name, and what it gave, not {given!r:.80}")
    call, value = given
    content = value if isinstance(value, str) else _check.json_text(value, "tools.answer")
    if isinstance(call, str):
        return {"name": call, "arguments": {}, "content": content}
    return {"name": call.name, "arguments": call.arguments, "id": call.id, "content": content}


class Decoder(reasoning.Decoder):
    """Takes an answer apart into ``Text``, ``Reasoning``, and for each call ``CallStart``, pieces of ``Arguments``, and the whole
    ``Call``; or ``Malformed``, which has all of its text.

    With ``tools``, arguments that a model writes without quotes get the types that those declare.
    """

    _calls = True

    def __init__(
        self,
        tools: Iterable[Mapping[str, Any]] | None = None,
        *,
        thinking: bool | None = None,
        opened: bool | None = None,
        continued: bool = False,
    ) -> None:
        text = None if tools is None else _check.json_list(tools, "tools.Decoder")
        self._decoder = self._make(text, thinking, opened, continued)
