"""SentencePiece BPE with byte fallback (``tokenizer.ggml.model`` = ``llama``), in plain Python.

The file has scores and no merges: of all neighbours that together make a token, the pair with the best score merges
first, the leftmost of equals. ``tokenizers`` needs that as a list of merges, half a million for Gemma, which costs a
second to derive and load and can't express the tie rule. Here nothing is derived: building costs some tens of
milliseconds, and with words cached encoding is as fast (docs/tokenizers.md has the figures).
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from pie_edge.errors import TokenizerError
from pie_edge.tokenizer.vocabulary import BYTE_TOKEN, Kind, Vocabulary

SPACE = "▁"
"""U+2581, which stands for a space inside tokens."""

_CACHED_WORDS = 1 << 15
_LONGEST_CACHED = 32


class SentencePiece:
    """Encodes stretches of ordinary text; markers are cut out before. ``prefix`` puts a space before each stretch."""

    def __init__(self, vocabulary: Vocabulary, scores: Sequence[float], unknown: int | None, prefix: bool) -> None:
        self._scores = scores
        self._prefix = prefix
        self._bytes = byte_tokens(vocabulary)
        self._unknown = unknown
        if self._bytes is None and unknown is None:
            raise TokenizerError(
                "the model's vocabulary has neither byte tokens nor an unknown token (tokenizer.ggml.unknown_token_id), "
                "so some text would have no tokens at all; convert the model again"
            )
        self._ids = dict(zip(vocabulary.texts, range(len(vocabulary)), strict=True))
        # User-defined tokens are matched before, and text must never merge into a control or byte token.
        for token in vocabulary.ids(Kind.CONTROL, Kind.UNKNOWN, Kind.USER_DEFINED, Kind.BYTE):
            self._ids.pop(vocabulary.texts[token], None)
        self._words = _word_pattern(vocabulary.texts)
        self._cached = lru_cache(_CACHED_WORDS)(self._merge_word)

    def encode(self, text: str, start: bool) -> list[int]:
        # A "▁" of the text itself is no space: as bytes it survives the way back. No token spans it.
        literal = [] if self._bytes is None or SPACE not in text else [self._bytes[byte] for byte in SPACE.encode()]
        spaced = f" {text}" if self._prefix else text
        ids: list[int] = []
        for n, part in enumerate(spaced.split(SPACE) if literal else [spaced]):
            if n:
                ids += literal
            for word in self._words.findall(part.replace(" ", SPACE)):
                ids += self._cached(word) if len(word) <= _LONGEST_CACHED else self._merge_word(word)
        return ids

    def bytes_of(self, text: str) -> bytes:
        return decode(text)

    def _merge_word(self, word: str) -> tuple[int, ...]:
        return tuple(token for piece in self._merge(word) for token in self._tokens(piece))

    def _merge(self, word: str) -> Iterable[str]:
        """Pieces of a word, merged best score first. Linear in pieces but for the heap."""
        pieces: list[str] = list(word)
        count = len(pieces)
        before, after = list(range(-1, count - 1)), list(range(1, count + 1))
        heap: list[tuple[float, int, str]] = []

        def offer(left: int, right: int) -> None:
            merged = pieces[left] + pieces[right]
            token = self._ids.get(merged)
            if token is not None:
                heapq.heappush(heap, (-self._scores[token], left, merged))

        for n in range(1, count):
            offer(n - 1, n)
        while heap:
            _, left, merged = heapq.heappop(heap)
            right = after[left]
            # An offer is void once either side has merged with another; emptied pieces never make up the text again.
            if right >= count or not pieces[left] or pieces[left] + pieces[right] != merged:
                continue
            pieces[left], pieces[right] = merged, ""
            after[left] = after[right]
            if after[left] < count:
                before[after[left]] = left
                offer(left, after[left])
            if before[left] >= 0:
                offer(before[left], left)
        return filter(None, pieces)

    def _tokens(self, piece: str) -> list[int]:
        token = self._ids.get(piece)
        if token is not None:
            return [token]
        if self._bytes is not None:
            return [self._bytes[byte] for byte in piece.replace(SPACE, " ").encode()]
        return [] if self._unknown is None else [self._unknown]


def decode(text: str) -> bytes:
    """The bytes of a token as it stands in text."""
    found = BYTE_TOKEN.fullmatch(text)
    return bytes([int(found[1], 16)]) if found else text.replace(SPACE, " ").encode()


def byte_tokens(vocabulary: Vocabulary) -> list[int] | None:
    """The ids of the tokens for bytes 0 to 255, or None if one is missing."""
    found = {decode(vocabulary.texts[token])[0]: token for token in vocabulary.ids(Kind.BYTE)}
    return [found[byte] for byte in range(256)] if len(found) == 256 else None


def _word_pattern(texts: Sequence[str]) -> re.Pattern[str]:
    """Cuts text where no token can span: before a run of "▁", unless some token goes on over one after that character.

    Gemma's only such token is ">▁</"; a vocabulary full of them just has longer words.
    """
    bridges = set(re.findall(f"([^{SPACE}\0]){SPACE}", "\0".join(texts)))
    onward = f"|(?<=[{re.escape(''.join(sorted(bridges)))}]){SPACE}++" if bridges else ""
    return re.compile(f"{SPACE}*+(?:[^{SPACE}]++{onward})++|{SPACE}++")
