"""A conversation as the model was trained to read it: each function gives the tokens to append to a context.

A chat is ``prefix() + system(…) + user(…) + cue()``, the answer up to one of ``stop_tokens()``, then ``seal()``, and
so on with ``user``. Without a system message, ``preamble()`` stands in its place. Where a model has no chat template
(``available()`` is False) these raise TemplateError, except for ``prefix`` and ``stop_tokens``, which every model has.
"""

from __future__ import annotations

import functools

from inferlet import _check
from inferlet._host import host
from inferlet.tokenizer import Decoder

__all__ = ["Decoder", "assistant", "available", "cue", "preamble", "prefix", "seal", "stop_tokens", "system", "user"]


def available() -> bool:
    return host().chat_available()


def prefix() -> list[int]:
    """What a context must start with: the beginning-of-text token or nothing. No system message."""
    return list(_prefix())


def preamble() -> list[int]:
    """What the template puts before the first user turn where there is no system message; nothing for most models."""
    return host().chat_preamble()


def system(text: str) -> list[int]:
    return host().chat_turn("system", _check.text(text, "chat.system"))


def user(text: str) -> list[int]:
    return host().chat_turn("user", _check.text(text, "chat.user"))


def assistant(text: str) -> list[int]:
    """An earlier answer."""
    return host().chat_turn("assistant", _check.text(text, "chat.assistant"))


def cue() -> list[int]:
    """Opens the model's own turn."""
    return host().chat_cue()


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
