"""A conversation as the model was trained to read it: each function gives the tokens to append to a context.

A chat is ``prefix() + system(…) + user(…) + cue()``, the answer up to one of ``stop_tokens()``, then ``seal()``, and
so on with ``user``. Without a system message, ``preamble()`` stands in its place. Where a model has no chat template
(``available()`` is False) these raise TemplateError, except for ``prefix`` and ``stop_tokens``, which every model has.

``thinking``, where it is taken, has the model think before it answers, or not; None leaves that as it is. It is given to all of a
conversation's pieces or to none, since templates say it in different places; one that says it nowhere refuses it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

from inferlet import _check
from inferlet._host import host
from inferlet.tokenizer import Decoder

__all__ = [
    "Decoder",
    "assistant",
    "available",
    "conversation",
    "cue",
    "preamble",
    "prefix",
    "seal",
    "stop_tokens",
    "system",
    "user",
]


def available() -> bool:
    return host().chat_available()


def prefix() -> list[int]:
    """What a context must start with: the beginning-of-text token or nothing. No system message."""
    return list(_prefix())


def preamble(*, thinking: bool | None = None) -> list[int]:
    """What the template puts before the first user turn where there is no system message; nothing for most models."""
    return host().chat_preamble(_check.switch(thinking, "chat.preamble"))


def system(text: str, *, thinking: bool | None = None) -> list[int]:
    return host().chat_turn("system", _check.text(text, "chat.system"), _check.switch(thinking, "chat.system"))


def user(text: str) -> list[int]:
    return host().chat_turn("user", _check.text(text, "chat.user"), None)


def assistant(text: str) -> list[int]:
    """An earlier answer."""
    return host().chat_turn("assistant", _check.text(text, "chat.assistant"), None)


def conversation(
    messages: Iterable[Mapping[str, Any]],
    *,
    tools: Iterable[Mapping[str, Any]] | None = None,
    thinking: bool | None = None,
    cue: bool = True,
) -> list[int]:
    """All of a conversation, ``prefix`` included: messages with a role and content, and perhaps tool calls, as OpenAI's API has
    them. With ``cue`` the model's own turn is open at the end.

    Raises TemplateError for what the template refuses, or would leave out.
    """
    given = None if tools is None else _check.json_list(tools, "chat.conversation")
    text = _check.json_list(messages, "chat.conversation")
    return host().chat_conversation(text, given, _check.switch(thinking, "chat.conversation"), bool(cue))


def cue(*, thinking: bool | None = None) -> list[int]:
    """Opens the model's own turn."""
    return host().chat_cue(_check.switch(thinking, "chat.cue"))


def seal() -> list[int]:
    """Closes the model's own turn."""
    return host().chat_seal()


def stop_tokens() -> list[int]:
    """Tokens that end an answer."""
    return list(_stop_tokens())


# Both are asked for at every step of a loop and never change.


@functools.cache
def _prefix() -> tuple[int, ...]:
    return tuple(host().chat_prefix())


@functools.cache
def _stop_tokens() -> tuple[int, ...]:
    return tuple(host().chat_stop_tokens())
