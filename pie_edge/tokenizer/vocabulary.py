"""A vocabulary: the text of every token and what kind of token it is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from pie_edge.errors import TokenizerError

BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
"""How a byte-fallback token is written."""

MARKER_LOOK = re.compile(r"<[|｜][^\s<>]*[|｜]>|</?s>|<(?:pad|bos|eos|mask)>|<(?:start|end)_of_turn>")
"""What control tokens look like; used only for files that don't say which tokens are control tokens."""


class Kind(IntEnum):
    """The values of ``tokenizer.ggml.token_type``."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


_KNOWN_KINDS = bytes(kind if kind in set(Kind) else Kind.NORMAL for kind in range(256))
"""Kinds that the format may add later, and 0 for undefined, are read as ordinary tokens."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """``texts[i]`` is token i as the file writes it, ``kinds[i]`` its ``Kind``, one byte each."""

    texts: Sequence[str]
    kinds: bytes

    def __len__(self) -> int:
        return len(self.texts)

    def ids(self, *kinds: Kind) -> list[int]:
        """Ids of all tokens of these kinds, ascending."""
        wanted = re.compile(b"[" + re.escape(bytes(kinds)) + b"]")
        return [found.start() for found in wanted.finditer(self.kinds)]

    def padded(self, size: int) -> Vocabulary:
        """With unused tokens without a text after its own, ``size`` in all."""
        more = max(size - len(self), 0)
        return Vocabulary([*self.texts, *[""] * more], self.kinds + bytes([Kind.UNUSED]) * more) if more else self

    def with_texts(self, changes: Mapping[int, str]) -> Vocabulary:
        if not changes:
            return self
        texts = list(self.texts)
        for token, text in changes.items():
            texts[token] = text
        return Vocabulary(texts, self.kinds)

    def with_kinds(self, changes: Mapping[int, Kind]) -> Vocabulary:
        kinds = bytearray(self.kinds)
        for token, kind in changes.items():
            kinds[token] = kind
        return Vocabulary(self.texts, bytes(kinds))


def read(metadata: Mapping[str, Any]) -> Vocabulary:
    """The vocabulary of a GGUF file. Without ``token_type`` the kinds are guessed from how tokens are written."""
    texts = strings(metadata, "tokenizer.ggml.tokens")
    if not texts:
        raise TokenizerError("tokenizer.ggml.tokens is empty; convert the model again")
    given = metadata.get("tokenizer.ggml.token_type")
    kinds = _guess_kinds(texts) if given is None else _check_kinds(given, len(texts))
    return Vocabulary(texts, kinds)


def required(metadata: Mapping[str, Any], key: str) -> Any:
    """``metadata[key]``; a missing key is a typed error that names it."""
    if key not in metadata:
        raise TokenizerError(
            f"the model file has no {key}, and its tokenizer can't be built without it; "
            "convert the model again, or import a copy that carries its tokenizer"
        )
    return metadata[key]


def strings(metadata: Mapping[str, Any], key: str) -> list[str]:
    """A required list of strings."""
    return _listed(metadata, key, {str}, "strings")


def numbers(metadata: Mapping[str, Any], key: str) -> list[float]:
    """A required list of numbers."""
    return _listed(metadata, key, {int, float}, "numbers")


def _listed(metadata: Mapping[str, Any], key: str, kinds: set[type], what: str) -> list[Any]:
    values = required(metadata, key)
    if isinstance(values, str) or not isinstance(values, Sequence) or not set(map(type, values)) <= kinds:
        raise TokenizerError(f"{key} is not a list of {what}; the file is damaged, convert the model again")
    return list(values)


def _check_kinds(given: Sequence[int], count: int) -> bytes:
    try:
        kinds = bytes(list(given)).translate(_KNOWN_KINDS)
    except (TypeError, ValueError):
        raise TokenizerError("tokenizer.ggml.token_type holds values that are no token types (1 to 6)") from None
    if len(kinds) != count:
        raise TokenizerError(
            f"tokenizer.ggml.token_type has {len(kinds)} entries for {count} tokens; the file is damaged"
        )
    return kinds


def _guess_kinds(texts: Iterable[str]) -> bytes:
    return bytes(_guess_kind(text) for text in texts)


def _guess_kind(text: str) -> Kind:
    # Only "<…>" can be anything but ordinary text, and 19 tokens in 20 are decided by the first character.
    if not text.startswith("<"):
        return Kind.NORMAL
    if BYTE_TOKEN.fullmatch(text):
        return Kind.BYTE
    if text == "<unk>":
        return Kind.UNKNOWN
    return Kind.CONTROL if MARKER_LOOK.fullmatch(text) else Kind.NORMAL
