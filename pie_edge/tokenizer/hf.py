"""A tokenizer from ``tokenizer.json`` and ``tokenizer_config.json``, run by the ``tokenizers`` library."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pie_edge.errors import TokenizerError
from pie_edge.tokenizer import byte_level, sentencepiece, unlocked
from pie_edge.tokenizer.markers import Strip
from pie_edge.tokenizer.sentencepiece import SPACE
from pie_edge.tokenizer.stops import stop_tokens
from pie_edge.tokenizer.tokenizer import Matching, Special, Tokenizer
from pie_edge.tokenizer.vocabulary import Kind, Vocabulary

if TYPE_CHECKING:
    import tokenizers

_MODELS = ("BPE", "Unigram")
_MOST_TOKENS = 1 << 31


def build(source: bytes | str | Path, config: Mapping[str, Any]) -> Tokenizer:
    """Raises ``TokenizerError`` if the file can't be read, isn't a tokenizer, or is of a kind unknown here."""
    library = _load(source)
    vocabulary = _vocabulary(library)
    byte_pieces = "ByteLevel" in set(_types(library.pre_tokenizer)) | set(_types(library.decoder))
    schemes = set(_prefix_schemes(library))
    model = Library(library, vocabulary, byte_pieces, first_only=schemes == {"first"})
    control = {vocabulary.texts[token]: token for token in vocabulary.ids(Kind.CONTROL, Kind.UNKNOWN)}
    matching = Matching(
        strips=_strips(library), prefix=bool(schemes & {"always", "first"}), prefix_after_markers="always" in schemes
    )
    return Tokenizer(vocabulary, model, _special(library, config, control), matching)


class Library:
    """Encodes stretches of text; the library itself matches added tokens that aren't special."""

    def __init__(
        self, library: tokenizers.Tokenizer, vocabulary: Vocabulary, byte_pieces: bool, first_only: bool
    ) -> None:
        # With this set the library takes special tokens in text for text; those meant as such are cut out before.
        library.encode_special_tokens = True
        self._library = library
        self._continuing = _without_prefix(library) if first_only else library
        self._decode = byte_level.decode if byte_pieces else sentencepiece.decode
        self._lossless = byte_level.Lossless(vocabulary.texts) if byte_pieces else None
        self._bytes = None if byte_pieces else sentencepiece.byte_tokens(vocabulary)
        self._single = {text for text in vocabulary.texts if len(text) == 1}

    def encode(self, text: str, start: bool) -> list[int]:
        library = self._library if start else self._continuing
        if self._lossless is not None:
            text = self._lossless.express(text)
        if self._bytes is None or SPACE not in text:
            return unlocked.ids(library, text)
        return self._with_literal_spaces(library, text, self._bytes)

    def bytes_of(self, text: str) -> bytes:
        return self._decode(text)

    def _with_literal_spaces(self, library: tokenizers.Tokenizer, text: str, byte_ids: Sequence[int]) -> list[int]:
        """A "▁" of the text itself is no space. Stand-ins without a token become bytes, and these the bytes of "▁"."""
        stand_in = next(c for c in map(chr, range(0xF0000, 0xFFFFE)) if c not in text and c not in self._single)
        ids = unlocked.ids(library, text.replace(SPACE, stand_in))
        wanted = [byte_ids[byte] for byte in stand_in.encode()]
        literal = [byte_ids[byte] for byte in SPACE.encode()]
        replaced: list[int] = []
        at = 0
        while at < len(ids):
            found = ids[at : at + len(wanted)] == wanted
            replaced += literal if found else ids[at : at + 1]
            at += len(wanted) if found else 1
        return replaced


def _load(source: bytes | str | Path) -> tokenizers.Tokenizer:
    from tokenizers import Tokenizer as LibraryTokenizer

    try:
        if isinstance(source, bytes):
            library = LibraryTokenizer.from_buffer(source)
        elif isinstance(source, str) and source.lstrip().startswith("{"):
            library = LibraryTokenizer.from_str(source)
        else:
            library = LibraryTokenizer.from_buffer(Path(source).read_bytes())
    except OSError as error:
        raise TokenizerError(f"tokenizer.json can't be read: {error}; import the model again") from error
    except Exception as error:
        raise TokenizerError(
            f"tokenizer.json is damaged or of an unknown kind: {error}; import the model again"
        ) from error
    kind = type(library.model).__name__
    if kind not in _MODELS:
        raise TokenizerError(f"tokenizer.json holds a {kind} model; supported are {' and '.join(_MODELS)}")
    library.no_truncation()
    library.no_padding()
    return library


def _vocabulary(library: tokenizers.Tokenizer) -> Vocabulary:
    ids = library.get_vocab(with_added_tokens=True)
    texts = [""] * (max(ids.values(), default=-1) + 1)
    for text, token in ids.items():
        texts[token] = text
    kinds = bytearray([Kind.NORMAL]) * len(texts)
    if getattr(library.model, "byte_fallback", False):
        for token in filter(None, (ids.get(f"<0x{byte:02X}>") for byte in range(256))):
            kinds[token] = Kind.BYTE
    for token, added in library.get_added_tokens_decoder().items():
        kinds[token] = Kind.CONTROL if added.special else Kind.USER_DEFINED
    unknown = ids.get(getattr(library.model, "unk_token", None) or "")
    if unknown is not None:
        kinds[unknown] = Kind.UNKNOWN
    return Vocabulary(texts, bytes(kinds))


def _strips(library: tokenizers.Tokenizer) -> dict[int, Strip]:
    added = library.get_added_tokens_decoder().items()
    return {token: Strip(one.lstrip, one.rstrip) for token, one in added if one.lstrip or one.rstrip}


def _special(library: tokenizers.Tokenizer, config: Mapping[str, Any], control: Mapping[str, int]) -> Special:
    # What the file's own post-processor puts before a text tells BOS when the configuration doesn't.
    markers, whole = frozenset(control.values()), library.encode("a").ids
    before = [token for token in whole[:1] if token in markers]
    bos = _named(config, "bos_token", control)
    bos = bos if bos is not None else next(iter(before), None)
    eos = _named(config, "eos_token", control)
    declared = [eos, *_ends(config.get("eos_token_id"))]
    if eos is None:
        eos = next(iter(declared[1:]), None)
    adds_bos = bool(config.get("add_bos_token", before)) and bos is not None
    # And what it puts behind one. Without a token of the text itself nobody could tell which is which.
    text = [place for place, token in enumerate(whole) if token not in markers]
    suffix = tuple(whole[text[-1] + 1 :]) if text else ()
    if config.get("add_eos_token") and eos is not None and not suffix:
        suffix = (eos,)
    return Special(bos, eos, stop_tokens(control, declared), adds_bos, suffix)


def _ends(declared: Any) -> list[int]:
    """``eos_token_id``: an id, a list of ids, or nothing."""
    ids = [] if declared is None else declared if isinstance(declared, list) else [declared]
    for token in ids:
        if type(token) is not int or not 0 <= token < _MOST_TOKENS:
            raise TokenizerError(
                f"eos_token_id is {declared!r} (in generation_config.json or tokenizer_config.json); it must be a token's id "
                "or a list of ids: mend or fetch the file again"
            )
    return ids


def _named(config: Mapping[str, Any], key: str, control: Mapping[str, int]) -> int | None:
    name = config.get(key)
    text = name.get("content") if isinstance(name, Mapping) else name
    return control.get(text) if isinstance(text, str) else None


def _state(component: Any) -> Any:
    """A component of a library tokenizer as the JSON it was read from."""
    return json.loads(component.__getstate__()) if component is not None else None


def _types(component: Any) -> Iterator[str]:
    return (part["type"] for part in _parts(_state(component)))


def _parts(state: Any) -> Iterator[dict[str, Any]]:
    """All components inside a component, sequences opened."""
    if isinstance(state, dict):
        if isinstance(state.get("type"), str):
            yield state
        state = list(state.values())
    if isinstance(state, list):
        for part in state:
            yield from _parts(part)


def _prefix_schemes(library: tokenizers.Tokenizer) -> Iterator[str]:
    """Where the file's normaliser and pre-tokenizer put a space: "always" (each stretch of text), "first", "never"."""
    for part in (*_parts(_state(library.normalizer)), *_parts(_state(library.pre_tokenizer))):
        if part["type"] == "Prepend":
            yield "always"
        elif part["type"] == "Metaspace":
            yield str(part.get("prepend_scheme", "always" if part.get("add_prefix_space", True) else "never"))


def _without_prefix(library: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """The same tokenizer for text that follows a marker."""
    from tokenizers import Tokenizer as LibraryTokenizer

    document = json.loads(library.to_str())
    for part in _parts(document["pre_tokenizer"]):
        if part["type"] == "Metaspace":
            part["prepend_scheme"] = "never"
    continuing = LibraryTokenizer.from_str(json.dumps(document))
    continuing.encode_special_tokens = True
    return continuing
