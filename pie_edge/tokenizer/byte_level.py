"""Byte-level BPE (``tokenizer.ggml.model`` = ``gpt2``) on the ``tokenizers`` library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pie_edge.errors import TokenizerError
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
        return list(self._library.encode(self._lossless.express(text), add_special_tokens=False).ids)

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
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers

    ids = dict(zip(vocabulary.texts, range(len(vocabulary)), strict=True))
    # Control tokens are matched by Markers alone: left out here, no text can merge into one.
    for token in vocabulary.ids(Kind.CONTROL, Kind.UNKNOWN):
        ids.pop(vocabulary.texts[token], None)
    pairs: list[tuple[str, str]] = list(map(tuple, map(str.split, merges)))  # type: ignore[arg-type]
    try:
        model = models.BPE(ids, pairs, ignore_merges=rule.whole_words)
    except Exception:
        # Raised for a merge whose parts or result are no tokens, control tokens included.
        model = models.BPE(ids, _usable(pairs, ids), ignore_merges=rule.whole_words)
    library = Tokenizer(model)
    cuts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in rule.patterns]
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [*cuts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    return library


def _usable(pairs: Sequence[tuple[str, ...]], ids: dict[str, int]) -> list[tuple[str, str]]:
    """Merges that make ordinary tokens of ordinary tokens. A merge that isn't a pair at all means a damaged file."""
    for pair in pairs:
        if len(pair) != 2:
            raise TokenizerError(
                f"tokenizer.ggml.merges holds {' '.join(pair)!r}, which is not two tokens; convert the model again"
            )
    return [(a, b) for a, b in pairs if a in ids and b in ids and a + b in ids]
