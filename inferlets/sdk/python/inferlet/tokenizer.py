"""The model's tokenizer by itself; ``model.encode`` and ``model.decode`` are the same functions."""

from __future__ import annotations

from collections.abc import Iterable

from inferlet import _check, model
from inferlet._host import host
from inferlet.model import decode, encode

__all__ = ["Decoder", "bos", "decode", "encode", "eos"]


def bos() -> int | None:
    return model.facts().bos


def eos() -> int | None:
    return model.facts().eos


class Decoder:
    """Text from a stream of tokens; never cuts a character in two, so a piece may come a few tokens late.

    ``special`` and ``continued`` are those of ``decode``.
    """

    def __init__(self, *, special: bool = False, continued: bool = False) -> None:
        self._decoder = host().decoder(special, continued)

    def push(self, tokens: int | Iterable[int]) -> str:
        """The text that is certain by now; may be empty."""
        given = [tokens] if isinstance(tokens, int) else tokens
        return self._decoder.push(_check.tokens(given, "Decoder.push"))

    def flush(self) -> str:
        """What is left; an unfinished character becomes U+FFFD."""
        return self._decoder.flush()
