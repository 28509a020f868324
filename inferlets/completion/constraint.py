"""What an answer has to match, and where that begins: after the reasoning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inferlet import Context, model, reasoning
from inferlet.grammar import Grammar
from prompts import Prompt

_CLOSERS = {"think": "</think>\n\n", "think-response": "</think>\n\n<response>", "brackets": "[/THINK]"}


def grammar_of(request: Mapping[str, Any]) -> Grammar | None:
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


def may_reason(prompt: Prompt) -> bool:
    """Whether the answer may begin with reasoning."""
    conversation = prompt.conversation
    if conversation is None or conversation["prefill"] or conversation["thinking"] is False:
        return False
    return reasoning.format() != "none"


def take_back(context: Context) -> int:
    """Drops the last token, which has begun the text, and what of a character came before it: how many."""
    dropped = 1
    while _is_part(context.tokens[-dropped - 1]):
        dropped += 1
    context.truncate(len(context.tokens) - dropped)
    return dropped


def close(context: Context) -> None:
    """Ends a reasoning that the model left open."""
    closer = _CLOSERS.get(reasoning.format())
    if closer is not None:
        context.fill(closer, special=True)


def _is_part(token: int) -> bool:
    try:
        model.spelling(token).decode()
    except UnicodeDecodeError:
        return True
    return False
