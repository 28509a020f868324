"""Tokens back to text, one at a time: what may be shown, as soon as it is certain."""

from __future__ import annotations

import codecs
from typing import Protocol

from pie_edge.tokenizer.vocabulary import Kind

UNKNOWN = "\N{REPLACEMENT CHARACTER}".encode()


class Pieces(Protocol):
    """What a detokenizer needs of a tokenizer."""

    @property
    def strips_space(self) -> bool: ...

    @property
    def strips_after_markers(self) -> bool: ...

    def token_bytes(self, token: int) -> bytes: ...

    def kind(self, token: int) -> Kind: ...


class Detokenizer:
    """``push`` each token, show what it returns, and ``flush`` at the end.

    A character whose bytes come in several tokens is held back until it is whole, so no piece ever ends in half a
    character, and all pieces together are exactly ``tokenizer.decode`` of the tokens. ``special`` shows control tokens.
    ``continued`` says that the tokens follow others, so that a leading space is text and stays.
    """

    def __init__(self, tokenizer: Pieces, *, special: bool = False, continued: bool = False) -> None:
        self._tokenizer = tokenizer
        self._special = special
        # The encoder puts one space before each stretch of text; the first text token of a stretch gives it back.
        self._strip = tokenizer.strips_space and not continued
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The text that has become certain with this token, possibly none. Raises ``InvalidHandle`` for no such id."""
        return self._utf8.decode(self._bytes(token))

    def flush(self) -> str:
        """What is left: U+FFFD if the tokens ended inside a character, else nothing."""
        return self._utf8.decode(b"", final=True)

    def _bytes(self, token: int) -> bytes:
        kind, data = self._tokenizer.kind(token), self._tokenizer.token_bytes(token)
        if kind == Kind.UNUSED:
            return data if self._special else b""
        if kind == Kind.USER_DEFINED:
            self._strip = self._tokenizer.strips_after_markers
            return data
        if kind == Kind.CONTROL:
            self._strip = self._strip or self._tokenizer.strips_after_markers
            return data if self._special else b""
        if kind == Kind.UNKNOWN and not self._special:
            data = UNKNOWN
        strip, self._strip = self._strip, False
        return data[1:] if strip and data.startswith(b" ") else data
