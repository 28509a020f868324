"""The model this program runs on, and its tokenizer."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from inferlet._host import Facts, host


@functools.cache
def facts() -> Facts:
    """Everything at once: name, architecture, description, licence, vocabulary, context, page_size, bos, eos."""
    return host().facts()


def name() -> str:
    return facts().name


def architecture() -> str:
    return facts().architecture


def description() -> str:
    return facts().description


def licence() -> str:
    return facts().licence


def vocabulary_size() -> int:
    """Token ids are 0 … vocabulary_size() − 1."""
    return facts().vocabulary


def context_size() -> int:
    """The most tokens that a context may hold."""
    return facts().context


def page_size() -> int:
    """Tokens in a KV page."""
    return facts().page_size


def encode(text: str, *, special: bool = False) -> list[int]:
    """Token ids. With ``special``, text that spells a control token becomes that token."""
    return host().encode(text, special)


def decode(tokens: Iterable[int], *, special: bool = False, continued: bool = False) -> str:
    """Text. With ``special``, control tokens are spelled out; otherwise they vanish. ``continued`` keeps a leading space,
    for tokens that follow others. Raises InvalidHandle for an id outside of the vocabulary."""
    return host().decode(list(tokens), special, continued)
