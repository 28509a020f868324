"""Byte-level BPE (``tokenizer.ggml.model`` = ``gpt2``) on the ``tokenizers`` library."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from pie_edge.errors import TokenizerError
from pie_edge.tokenizer import unlocked
from pie_edge.tokenizer.pretokenizers import PreTokenizer
from pie_edge.tokenizer.vocabulary import Kind, Vocabulary

if TYPE_CHECKING:
    import tokenizers


def _alphabet() -> dict[str, int]:
    """The 256 characters that stand for bytes: printable Latin-1 for itself, the others from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


ALPHABET = _alphabet()
_UTF8_BYTES = {*range(0xC0), *range(0xC2, 0xF5)}
"""The bytes that occur in UTF-8."""


class ByteLevel:
    """Encodes stretches of ordinary text; markers are cut out before."""

    def __init__(self, vocabulary: Vocabulary, merges: Sequence[str], rule: PreTokenizer) -> None:
        self._library = _build(vocabulary, merges, rule)
        self._lossless = Lossless(vocabulary.texts)

    def encode(self, text: str, start: bool) -> list[int]:
        return unlocked.ids(self._library, self._lossless.express(text))

    def bytes_of(self, text: str) -> bytes:
        return decode(text)


def decode(text: str) -> bytes:
    """The bytes of a token; characters outside the byte alphabet, which some converters leave, stand for themselves."""
    try:
        return bytes(ALPHABET[character] for character in text)
    except KeyError:
        return b"".join(bytes([ALPHABET[c]]) if c in ALPHABET else c.encode() for c in text)


class Lossless:
    """Keeps characters from vanishing that a vocabulary can't express.

    Some vocabularies lack tokens for rare bytes (SmolLM2: six control characters and the planes 4 to 11), and BPE drops
    what it has no token for. Such characters become U+FFFD, so that the model and the reader see something was there.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        single = {text for text in texts if len(text) == 1}
        self._missing = bytes(
            byte for character, byte in ALPHABET.items() if byte in _UTF8_BYTES and character not in single
        )

    def express(self, text: str) -> str:
        data = text.encode()
        if not self._missing or len(data.translate(None, self._missing)) == len(data):
            return text
        return "".join("\N{REPLACEMENT CHARACTER}" if self._lacks(character) else character for character in text)

    def _lacks(self, character: str) -> bool:
        return any(byte in self._missing for byte in character.encode())


def _build(vocabulary: Vocabulary, merges: Sequence[str], rule: PreTokenizer) -> tokenizers.Tokenizer:
    from tokenizers import Regex, Tokenizer, pre_tokenizers

    ids = dict(zip(vocabulary.texts, range(len(vocabulary)), strict=True))
    # Control tokens are matched by Markers alone: left out here, no text can merge into one.
    for token in vocabulary.ids(Kind.CONTROL, Kind.UNKNOWN):
        ids.pop(vocabulary.texts[token], None)
    library = Tokenizer(_bpe(ids, list(map(tuple, map(str.split, merges))), rule.whole_words))
    cuts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in rule.patterns]
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [*cuts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    return library


def _bpe(ids: dict[str, int], pairs: list[tuple[str, ...]], whole_words: bool) -> tokenizers.models.BPE:
    from tokenizers import models

    wrong = next((pair for pair in pairs if len(pair) != 2), None)
    if wrong is not None:
        raise TokenizerError(
            f"tokenizer.ggml.merges holds {' '.join(wrong)!r}, which is not two tokens; convert the model again"
        )
    sound = cast(list[tuple[str, str]], pairs)
    # The library panics over a merge whose result is no token, so that is checked here, at C speed.
    if all(map(ids.__contains__, map("".join, sound))):
        with suppress(Exception):  # raised for a merge of what is no token; nothing else can be wrong here
            return models.BPE(ids, sound, ignore_merges=whole_words)
    # So it is where a converter marked a merged token as a control token: such merges are left out.
    usable = [(a, b) for a, b in sound if a in ids and b in ids and a + b in ids]
    return models.BPE(ids, usable, ignore_merges=whole_words)
