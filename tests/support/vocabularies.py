"""Small vocabularies as GGUF metadata, for tests of tokenizers and chat templates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pie_edge.tokenizer.byte_level import ALPHABET
from pie_edge.tokenizer.vocabulary import Kind

LETTERS = {byte: character for character, byte in ALPHABET.items()}


def as_letters(text: str) -> str:
    """Text as byte-level BPE writes it."""
    return "".join(LETTERS[byte] for byte in text.encode())


def byte_level(
    control: Iterable[str] = (),
    user_defined: Iterable[str] = (),
    merges: Sequence[tuple[str, str]] = (),
    **keys: Any,
) -> dict[str, Any]:
    """Byte-level BPE: control tokens, user-defined ones, the 256 bytes, then what the merges make, in this order."""
    control, user_defined = list(control), list(user_defined)
    ordinary = list(dict.fromkeys([*(LETTERS[byte] for byte in range(256)), *(a + b for a, b in merges)]))
    kinds = [Kind.CONTROL] * len(control) + [Kind.USER_DEFINED] * len(user_defined) + [Kind.NORMAL] * len(ordinary)
    metadata = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": [*control, *user_defined, *ordinary],
        "token_type": [int(kind) for kind in kinds],
        "merges": [f"{a} {b}" for a, b in merges],
        **keys,
    }
    return {f"tokenizer.ggml.{key}": value for key, value in metadata.items() if value is not None}


def sentencepiece(
    pieces: Mapping[str, float],
    control: Iterable[str] = ("<s>", "</s>"),
    user_defined: Iterable[str] = (),
    byte_fallback: bool = True,
    **keys: Any,
) -> dict[str, Any]:
    """SentencePiece BPE: <unk>, control tokens, user-defined ones, byte tokens, then the pieces with their scores."""
    control, user_defined = list(control), list(user_defined)
    single = [f"<0x{byte:02X}>" for byte in range(256)] if byte_fallback else []
    tokens = ["<unk>", *control, *user_defined, *single, *pieces]
    kinds = [Kind.UNKNOWN] + [Kind.CONTROL] * len(control) + [Kind.USER_DEFINED] * len(user_defined)
    kinds += [Kind.BYTE] * len(single) + [Kind.NORMAL] * len(pieces)
    metadata = {
        "model": "llama",
        "tokens": tokens,
        "scores": [0.0] * (len(tokens) - len(pieces)) + list(pieces.values()),
        "token_type": [int(kind) for kind in kinds],
        **keys,
    }
    return {f"tokenizer.ggml.{key}": value for key, value in metadata.items() if value is not None}
