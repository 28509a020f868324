"""The tokens that a grammar is matched with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


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


class Adapter:
    """As the matching library asks for a tokenizer: these names are its own."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.tokens = list(vocabulary.tokens)
        self.special_token_ids = sorted(vocabulary.special)
        self.eos_token_id = min(vocabulary.stops)
        self.bos_token_id = None
        self.is_tokenizer_wrapper = True
        self._encode = vocabulary.encode

    def __call__(self, text: str) -> list[int]:
        return list(self._encode(text))
