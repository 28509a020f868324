"""What an answer has to match, and where that begins: after the reasoning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inferlet import Context, errors, model, reasoning, tools
from inferlet.grammar import Grammar, Matcher
from prompts import Prompt

_CLOSERS = {"think": "</think>\n\n", "think-response": "</think>\n\n<response>", "brackets": "[/THINK]"}


class Constraint:
    """``text`` holds for the answer's text, after reasoning; a model that calls instead needn't keep to it. ``calls`` holds for
    the whole answer, reasoning included."""

    def __init__(self, text: Grammar | None = None, calls: Matcher | None = None) -> None:
        self.text = text
        self.calls = calls

    @classmethod
    def of(cls, prompt: Prompt) -> Constraint:
        request = prompt.request
        choice = request["tool_choice"]
        if choice not in ("auto", "none"):
            return cls(calls=_calls(prompt, choice.removeprefix("function:")))
        if request["constraint"] is None and any(tool["function"].get("strict") for tool in prompt.tools):
            return cls(calls=_calls(prompt, choice))
        return cls(_text(request))


def _calls(prompt: Prompt, choice: str) -> Matcher:
    return tools.matcher(prompt.tools, choice, parallel=prompt.request["parallel_calls"], thinking=prompt.thinking)


def _text(request: Mapping[str, Any]) -> Grammar | None:
    match request["constraint"]:
        case None:
            return None
        case {"kind": "json"}:
            return Grammar.json()
        case {"kind": "json-schema", "text": text}:
            return Grammar.json_schema(text)
        case {"kind": "regex", "text": text}:
            return Grammar.regex(text)
        case lark:
            return Grammar.lark(lark["text"])


def may_precede(prompt: Prompt) -> bool:
    """Whether something may come before the answer's text, or in its place: reasoning, or calls."""
    conversation = prompt.conversation
    if conversation is None or conversation["prefill"]:
        return False
    return bool(prompt.tools) or (conversation["thinking"] is not False and reasoning.format() != "none")


def take_back(context: Context) -> int:
    """Drops the last token, which has begun the text, and what of a character came before it: how many."""
    dropped = 1
    while _is_part(context.tokens[-dropped - 1]):
        dropped += 1
    context.truncate(len(context.tokens) - dropped)
    return dropped


def bound_of(prompt: Prompt) -> int | None:
    """After how many tokens the reasoning is closed. Raises UsageError where it can't be from outside."""
    bound: int | None = prompt.request["thinking_tokens"]
    if bound is None or reasoning.format() == "none":
        return None
    if reasoning.format() not in _CLOSERS:
        raise errors.UsageError(f"{model.name()} thinks for as long as it likes; leave the bound of its thinking out")
    return bound


def close(context: Context) -> list[int]:
    """Ends a reasoning that the model left open, with these tokens."""
    tokens = model.encode(_CLOSERS.get(reasoning.format(), ""), special=True)
    context.fill(tokens)
    return tokens


def _is_part(token: int) -> bool:
    try:
        model.spelling(token).decode()
    except UnicodeDecodeError:
        return True
    return False
