"""SentencePiece Unigram (``tokenizer.ggml.model`` = ``t5``) on the ``tokenizers`` library.

Its normalisation (a character map, extra white space removed) can't be undone: decode(encode(x)) is the normalised x.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pie_edge.errors import TokenizerError
from pie_edge.tokenizer import unlocked
from pie_edge.tokenizer.sentencepiece import SPACE, byte_tokens, decode
from pie_edge.tokenizer.vocabulary import Kind, Vocabulary

if TYPE_CHECKING:
    import tokenizers


@dataclass(frozen=True, slots=True)
class Normalisation:
    """``charsmap`` is SentencePiece's precompiled map; ``collapse`` trims and joins runs of spaces."""

    charsmap: bytes = b""
    collapse: bool = False
    prefix: bool = True


class Unigram:
    """Encodes stretches of ordinary text; markers are cut out before."""

    def __init__(self, vocabulary: Vocabulary, scores: Sequence[float], unknown: int, how: Normalisation) -> None:
        self._library = _build(vocabulary, scores, unknown, how)

    def encode(self, text: str, start: bool) -> list[int]:
        return unlocked.ids(self._library, text)

    def bytes_of(self, text: str) -> bytes:
        return decode(text)


def _build(vocabulary: Vocabulary, scores: Sequence[float], unknown: int, how: Normalisation) -> tokenizers.Tokenizer:
    from tokenizers import Regex, Tokenizer, models, normalizers

    texts = list(vocabulary.texts)
    # Markers are matched before; with a space, which normalised text never has, no text can become a control token.
    for token in vocabulary.ids(Kind.CONTROL, Kind.USER_DEFINED):
        texts[token] = f" {texts[token]}"
    pairs = list(zip(texts, map(float, scores), strict=True))
    try:
        model = models.Unigram(pairs, unk_id=unknown, byte_fallback=byte_tokens(vocabulary) is not None)
        steps: list[normalizers.Normalizer] = [normalizers.Precompiled(how.charsmap)] if how.charsmap else []
    except Exception as error:
        raise TokenizerError(
            f"the model's Unigram tokenizer can't be built: {error}; convert the model again"
        ) from error
    if how.collapse:
        steps += [normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip()]
    if how.prefix:
        steps.append(normalizers.Prepend(SPACE))
    library = Tokenizer(model)
    library.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", SPACE)])
    return library
