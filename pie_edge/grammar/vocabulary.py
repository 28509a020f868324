"""The tokens that a grammar is matched with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """``tokens`` are what each spells, by its id. ``special`` ones are never part of a text: control tokens, and those that stand
    for nothing. Those of ``stops`` end an answer. ``encode`` gives the tokens of a text that follows others; ``size`` is how many
    logits the model has, which may be more than tokens."""

    tokens: Sequence[bytes]
    special: frozenset[int]
    stops: frozenset[int]
    encode: Callable[[str], Sequence[int]]
    size: int

    @property
    def words(self) -> int:
        """Of 32 bits, in a mask."""
        return -(-self.size // 32)


END = b"<end of the text>"


class Adapter:
    """As the matching library asks for a tokenizer: these names are its own."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.tokens = [*vocabulary.tokens, END]
        """The last one is no token of the model's: it ends a text where the model has nothing to end one with."""
        self.special_token_ids = [*sorted(vocabulary.special), len(vocabulary.tokens)]
        self.stops = sorted(vocabulary.stops) or [len(vocabulary.tokens)]
        self.eos_token_id = self.stops[0]
        self.bos_token_id = None
        self.is_tokenizer_wrapper = True
        self._encode = vocabulary.encode
        self._special = vocabulary.special

    def __call__(self, text: str) -> list[int]:
        """Tokens that spell just this text. Some tokenizers change what they read: then it is the longest tokens that fit, and
        none where it can't be spelled."""
        data = text.encode()
        tokens = list(self._encode(text))
        return tokens if self._spelled(tokens) == data else self._longest(data)

    def _spelled(self, tokens: Sequence[int]) -> bytes:
        return b"".join(self.tokens[token] for token in tokens)

    def _longest(self, data: bytes) -> list[int]:
        found: list[int] = []
        at = 0
        while at < len(data):
            fitting = (data[at : at + size] for size in range(min(self._length, len(data) - at), 0, -1))
            token = next((self._ids[piece] for piece in fitting if piece in self._ids), None)
            if token is None:
                return []
            found.append(token)
            at += len(self.tokens[token])
        return found

    @cached_property
    def _ids(self) -> dict[bytes, int]:
        return {piece: token for token, piece in enumerate(self.tokens) if token not in self._special and piece}

    @cached_property
    def _length(self) -> int:
        return max(map(len, self._ids))
