"""The tokenizer of a model: text to token ids and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from pie_edge.errors import InvalidHandle, TokenizerError
from pie_edge.tokenizer.detokenizer import Detokenizer
from pie_edge.tokenizer.markers import Markers, Strip
from pie_edge.tokenizer.vocabulary import Kind, Vocabulary

_KINDS = {int(kind): kind for kind in Kind}


class Model(Protocol):
    """The algorithm inside a tokenizer. It never sees a control token."""

    def encode(self, text: str, start: bool) -> list[int]:
        """Ids of a stretch of ordinary text between markers; ``start`` if nothing stands before it."""

    def bytes_of(self, text: str) -> bytes:
        """The bytes that an ordinary token, written ``text`` in the file, stands for."""


@dataclass(frozen=True, slots=True)
class Special:
    """The tokens with a role. ``adds_bos``: the model was trained on texts that start with ``bos``, ``suffix``: and end so."""

    bos: int | None
    eos: int | None
    stop_tokens: frozenset[int]
    adds_bos: bool
    suffix: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Matching:
    """How markers are matched in text and spaces put around it.

    ``user_defined``: tokens matched in any text before the model sees it. ``strips``: markers that swallow white space.
    ``prefix`` / ``prefix_after_markers``: the model puts a space before a text / before each stretch after a marker,
    which decoding takes away again.
    """

    user_defined: Mapping[str, int] = field(default_factory=dict)
    strips: Mapping[int, Strip] = field(default_factory=dict)
    prefix: bool = False
    prefix_after_markers: bool = False


class Tokenizer:
    """Neither ``encode`` nor a chat template adds BOS by itself: what a context must start with is ``prefix()``."""

    def __init__(self, vocabulary: Vocabulary, model: Model, special: Special, matching: Matching) -> None:
        self._vocabulary = vocabulary
        self._model = model
        self._special = special
        self._matching = matching
        self._user_defined = Markers(matching.user_defined, matching.strips)

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any]) -> Tokenizer:
        """From a GGUF file's metadata alone. Raises ``TokenizerError`` naming the key that is missing or wrong."""
        from pie_edge.tokenizer import gguf

        return gguf.build(metadata)

    @classmethod
    def from_json(cls, tokenizer_json: bytes | str | Path, config: Mapping[str, Any] | None = None) -> Tokenizer:
        """From ``tokenizer.json``: its bytes, its text, or a path.

        ``config`` is tokenizer_config.json, with generation_config.json's ``eos_token_id`` (an id or a list) put in if
        there is one.
        """
        from pie_edge.tokenizer import hf

        return hf.build(tokenizer_json, config or {})

    def padded(self, size: int) -> Tokenizer:
        """The same for a model with ``size`` logits, which may be more than the file has tokens: the rest stand for nothing."""
        return Tokenizer(self._vocabulary.padded(size), self._model, self._special, self._matching)

    @property
    def bos(self) -> int | None:
        return self._special.bos

    @property
    def eos(self) -> int | None:
        return self._special.eos

    @property
    def stop_tokens(self) -> frozenset[int]:
        """All tokens that end a turn: eos, end of turn, end of text, as far as this vocabulary has them."""
        return self._special.stop_tokens

    @property
    def adds_bos(self) -> bool:
        return self._special.adds_bos

    @property
    def size(self) -> int:
        """How many tokens there are."""
        return len(self._vocabulary)

    def prefix(self) -> list[int]:
        """What a context must start with: BOS or nothing."""
        return [self.bos] if self.adds_bos and self.bos is not None else []

    def suffix(self) -> list[int]:
        """What a whole text ends with that is read for its vector, and not to be continued: mostly nothing."""
        return list(self._special.suffix)

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Token ids of a text. ``special`` recognises control tokens written in it, as a chat template needs; without
        it they are ordinary text, as user content must be. Raises ``TokenizerError`` for lone surrogates."""
        return self._encode(check(text), self.markers if special else self._user_defined, start=True)

    def encode_guarded(self, text: str, guard: str) -> list[int]:
        """Like ``encode(text, special=True)``, but a marker with the character ``guard`` inside is ordinary text. The
        guard itself is dropped."""
        ids: list[int] = []
        for part in self.markers.split(check(text)):
            if isinstance(part, int):
                ids.append(part)
            else:
                ids += self._encode(part.replace(guard, ""), self._user_defined, start=not ids)
        return ids

    def decode(self, ids: Iterable[int], *, special: bool = False, continued: bool = False) -> str:
        """The text of these tokens; bytes that are no UTF-8 become U+FFFD. ``special`` shows control tokens.
        ``continued``: the ids follow others, so a leading space is kept. Raises ``InvalidHandle`` for an id outside the
        vocabulary."""
        pieces = Detokenizer(self, special=special, continued=continued)
        return "".join(map(pieces.push, ids)) + pieces.flush()

    def token_bytes(self, token: int) -> bytes:
        """What a token stands for. Control tokens have their name; parts of a character are no valid UTF-8."""
        kind, text = self.kind(token), self._vocabulary.texts[token]
        if kind in (Kind.CONTROL, Kind.USER_DEFINED, Kind.UNKNOWN):
            return text.encode()
        return self._model.bytes_of(text)

    def vocabulary(self) -> Sequence[bytes]:
        """``token_bytes`` of every token, by id."""
        return self._all_bytes

    def kind(self, token: int) -> Kind:
        if not 0 <= token < len(self._vocabulary):
            raise InvalidHandle(f"token {token} is outside the model's vocabulary of 0 to {len(self._vocabulary) - 1}")
        return _KINDS[self._vocabulary.kinds[token]]

    def control(self, text: str) -> int | None:
        """The id of the control token with this name, if the vocabulary has one."""
        return self.control_tokens.get(text)

    @property
    def strips_space(self) -> bool:
        return self._matching.prefix

    @property
    def strips_after_markers(self) -> bool:
        return self._matching.prefix_after_markers

    @cached_property
    def control_tokens(self) -> Mapping[str, int]:
        """Names and ids of all tokens that plain text never becomes."""
        texts = self._vocabulary.texts
        return {texts[token]: token for token in self._vocabulary.ids(Kind.CONTROL, Kind.UNKNOWN) if texts[token]}

    @cached_property
    def markers(self) -> Markers:
        """Everything that ``encode(…, special=True)`` matches literally."""
        return Markers({**self._matching.user_defined, **self.control_tokens}, self._matching.strips)

    @cached_property
    def _all_bytes(self) -> tuple[bytes, ...]:
        return tuple(map(self.token_bytes, range(len(self._vocabulary))))

    def _encode(self, text: str, markers: Markers, start: bool) -> list[int]:
        ids: list[int] = []
        for part in markers.split(text):
            if isinstance(part, int):
                ids.append(part)
            else:
                ids += self._model.encode(part, start and not ids)
        return ids


def check(text: str) -> str:
    """The text, if it is one: a lone surrogate has no bytes and so no tokens."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise TokenizerError(
            f"the text holds a lone surrogate U+{ord(text[error.start]):04X} at character {error.start}, "
            "which no tokenizer can encode; pass valid Unicode"
        ) from None
    return text
