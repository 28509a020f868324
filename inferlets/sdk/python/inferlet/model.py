"""The model this program runs on, and its tokenizer."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from inferlet import _check
from inferlet._host import Description, Facts, host
from inferlet.errors import InvalidHandle, UsageError

TRAITS = (
    "allocate",
    "forward",
    "adapter",
    "input-text",
    "input-image",
    "output-text",
    "tokenize",
    "introspective",
)
"""What a model may have: groups of functions of ``inferlet.traits``."""


@functools.cache
def facts() -> Facts:
    """Everything at once: name, architecture, description, licence, vocabulary, context, page_size, bos, eos, recurrent,
    reversible, hidden, pooling, suffix, sampling."""
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


def is_recurrent() -> bool:
    """Whether a context has recurrent state beside keys and values. It follows from all tokens in their order: some can be taken
    back and a context can be forked, but none be hidden, cut out or gone around."""
    return facts().recurrent


def reversible_tokens() -> int:
    """How many tokens can be forwarded past any place and still be taken back to it, so how many may be drafted at once;
    ``context_size()`` where all can."""
    return facts().reversible


def hidden_size() -> int:
    """Entries of a hidden state, as ``intrinsics.hidden()`` gives it."""
    return facts().hidden


def pooling() -> str | None:
    """How the vector of a text comes of its hidden states, as the checkpoint declares or the setting says: over all (``mean``),
    of the last token (``last``) or the first (``cls``). None where nothing says how."""
    return facts().pooling


def sampling() -> dict[str, float]:
    """What the checkpoint recommends to sample with, as keywords of ``Sampler``: ``Sampler(**model.sampling())``. What it leaves
    open isn't there; there is nothing where the setting ``generation_config`` is off."""
    return {name: int(value) if name == "top_k" else value for name, value in facts().sampling}


@functools.cache
def adapters() -> list[str]:
    """The names of the low-rank adapters (LoRA) that it was loaded with, for ``ForwardPass.adapt`` and ``Context(adapter=…)``."""
    return host().adapters()


def checked_adapter(adapter: str | None) -> str | None:
    """The same name. Raises InvalidHandle where the model has no such adapter."""
    if adapter is not None and adapter not in adapters():
        there = f"it has {', '.join(adapters())}" if adapters() else "it was loaded with none"
        raise InvalidHandle(
            f"{name()} has no adapter {adapter!r}; {there}. Adapters are loaded with `--adapter NAME=FOLDER`"
        )
    return adapter


@functools.cache
def attention_layers() -> int:
    """How many layers' attention a pass can observe. They count from 0; there are none where the model has no trait
    ``introspective``."""
    return host().attention_layers()


@functools.cache
def vocabulary() -> list[bytes]:
    """What each token spells, by its id: parts of a character are no valid UTF-8, control tokens have their names."""
    spelled: list[bytes] = []
    while len(spelled) < vocabulary_size():
        lengths, data = host().vocabulary(len(spelled), 4096)
        if not lengths:  # ids that the tokenizer doesn't know: a model may have more rows than tokens
            spelled += [b""] * (vocabulary_size() - len(spelled))
        start = 0
        for length in lengths:
            spelled.append(data[start : start + length])
            start += length
    return spelled


@functools.cache
def spelling(token: int) -> bytes:
    """What one token spells, as in ``vocabulary``."""
    lengths, data = host().vocabulary(_check.count(token, "model.spelling"), 1)
    return data if lengths else b""


def all() -> list[str]:
    """The names of the models of this host."""
    return host().list_models()


def with_traits(*traits: str) -> list[str]:
    """The names of those that have all of these traits."""
    unknown = set(traits) - set(TRAITS)
    if unknown:
        raise UsageError(f"{', '.join(sorted(unknown))} is no trait; those are {', '.join(TRAITS)}")
    return host().models_with_traits(traits)


def get(name: str) -> Description:
    """A model's name, traits, description, version, licence and prompt_template. Raises ModelNotFound."""
    return host().describe_model(name)


def encode(text: str, *, special: bool = False) -> list[int]:
    """Token ids. With ``special``, text that spells a control token becomes that token."""
    return host().encode(_check.text(text, "model.encode"), special)


def decode(tokens: Iterable[int], *, special: bool = False, continued: bool = False) -> str:
    """Text. With ``special``, control tokens are spelled out; otherwise they vanish. ``continued`` keeps a leading space,
    for tokens that follow others. Raises InvalidHandle for an id outside of the vocabulary."""
    return host().decode(_check.tokens(tokens, "model.decode"), special, continued)
