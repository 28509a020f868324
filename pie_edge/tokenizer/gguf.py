"""A tokenizer from the metadata of a GGUF file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pie_edge.errors import TokenizerError
from pie_edge.tokenizer import pretokenizers
from pie_edge.tokenizer.byte_level import ByteLevel
from pie_edge.tokenizer.markers import Strip
from pie_edge.tokenizer.sentencepiece import SPACE, SentencePiece
from pie_edge.tokenizer.stops import stop_tokens
from pie_edge.tokenizer.tokenizer import Matching, Model, Special, Tokenizer
from pie_edge.tokenizer.unigram import Normalisation, Unigram
from pie_edge.tokenizer.vocabulary import Kind, Vocabulary, numbers, read, required, strings

_NO_TOKEN = 0xFFFFFFFF
"""How some converters write that there is no such token."""

_ENDS = ("eos", "eot", "eom")


def build(metadata: Mapping[str, Any]) -> Tokenizer:
    """Raises ``TokenizerError`` naming the key that is missing or wrong, and the remedy."""
    family = required(metadata, "tokenizer.ggml.model")
    make = _FAMILIES.get(family) if isinstance(family, str) else None
    if make is None:
        raise TokenizerError(
            f"the model's tokenizer is of the kind {family!r} (tokenizer.ggml.model), which is not known here; "
            f"known are {', '.join(_FAMILIES)}"
        )
    vocabulary = read(metadata)
    roles = _roles(metadata, family, vocabulary)
    # A token with such a role is a control token, whatever the converter wrote: user text must not become it. Unless it is a
    # byte: no text with that byte could be written without it.
    named = [token for token in roles.values() if token is not None and not _is_byte(family, vocabulary, token)]
    vocabulary = vocabulary.with_kinds(dict.fromkeys(named, Kind.CONTROL))
    if family != "gpt2":
        vocabulary = _with_spaces(vocabulary)
    model, matching, adds_bos = make(metadata, vocabulary)
    control = {vocabulary.texts[token]: token for token in vocabulary.ids(Kind.CONTROL)}
    bos, eos = roles["bos"], roles["eos"]
    special = Special(
        bos=bos,
        eos=eos,
        stop_tokens=stop_tokens(control, [roles[name] for name in _ENDS]),
        adds_bos=_flag(metadata, "add_bos_token", adds_bos) and bos is not None,
        suffix=(eos,) if eos is not None and _flag(metadata, "add_eos_token", False) else (),
    )
    return Tokenizer(vocabulary, model, special, matching)


def _is_byte(family: str, vocabulary: Vocabulary, token: int) -> bool:
    text = vocabulary.texts[token]
    return vocabulary.kinds[token] == Kind.BYTE or (len(text) == 1 if family == "gpt2" else text == "▁")


def _byte_level(metadata: Mapping[str, Any], vocabulary: Vocabulary) -> tuple[Model, Matching, bool]:
    rule = pretokenizers.find(str(metadata.get("tokenizer.ggml.pre", pretokenizers.DEFAULT)))
    model = ByteLevel(vocabulary, strings(metadata, "tokenizer.ggml.merges"), rule)
    return model, Matching(user_defined=_user_defined(vocabulary)), rule.adds_bos


def _sentencepiece(metadata: Mapping[str, Any], vocabulary: Vocabulary) -> tuple[Model, Matching, bool]:
    prefix = _flag(metadata, "add_space_prefix", True)
    model = SentencePiece(vocabulary, _scores(metadata, vocabulary), _unknown(metadata, vocabulary), prefix)
    matching = Matching(_user_defined(vocabulary), _strips(metadata, vocabulary), prefix, prefix_after_markers=prefix)
    return model, matching, True


def _unigram(metadata: Mapping[str, Any], vocabulary: Vocabulary) -> tuple[Model, Matching, bool]:
    how = Normalisation(
        charsmap=_charsmap(metadata),
        collapse=_flag(metadata, "remove_extra_whitespaces", False),
        prefix=_flag(metadata, "add_space_prefix", True),
    )
    unknown = _unknown(metadata, vocabulary)
    if unknown is None:
        raise TokenizerError(
            "the model's Unigram tokenizer has no unknown token (tokenizer.ggml.unknown_token_id); convert the model again"
        )
    model = Unigram(vocabulary, _scores(metadata, vocabulary), unknown, how)
    return model, Matching(_user_defined(vocabulary), {}, how.prefix, prefix_after_markers=how.prefix), False


_FAMILIES = {"gpt2": _byte_level, "llama": _sentencepiece, "t5": _unigram}
_DEFAULT_ROLES: dict[str, dict[str, int]] = {"llama": {"bos": 1, "eos": 2}, "t5": {"eos": 1}}


def _roles(metadata: Mapping[str, Any], family: str, vocabulary: Vocabulary) -> dict[str, int | None]:
    """The tokens that start a text or end a turn. Files may leave out what is usual in their family."""
    roles = {name: _token(metadata, name, vocabulary) for name in ("bos", *_ENDS)}
    for name, token in _DEFAULT_ROLES.get(family, {}).items():
        if roles[name] is None and token < len(vocabulary) and vocabulary.kinds[token] == Kind.CONTROL:
            roles[name] = token
    return roles


def _token(metadata: Mapping[str, Any], name: str, vocabulary: Vocabulary) -> int | None:
    key = f"tokenizer.ggml.{name}_token_id"
    token = metadata.get(key)
    if token is None or token == _NO_TOKEN:
        return None
    if not isinstance(token, int) or not 0 <= token < len(vocabulary):
        raise TokenizerError(
            f"{key} is {token!r}, but the vocabulary has tokens 0 to {len(vocabulary) - 1}; the file is damaged"
        )
    return token


def _unknown(metadata: Mapping[str, Any], vocabulary: Vocabulary) -> int | None:
    declared = _token(metadata, "unknown", vocabulary)
    return declared if declared is not None else next(iter(vocabulary.ids(Kind.UNKNOWN)), None)


def _scores(metadata: Mapping[str, Any], vocabulary: Vocabulary) -> list[float]:
    scores = numbers(metadata, "tokenizer.ggml.scores")
    if len(scores) != len(vocabulary):
        raise TokenizerError(
            f"tokenizer.ggml.scores has {len(scores)} entries for {len(vocabulary)} tokens; the file is damaged"
        )
    return scores


def _charsmap(metadata: Mapping[str, Any]) -> bytes:
    try:
        # GGUF has it as signed or unsigned bytes.
        return bytes(byte & 0xFF for byte in metadata.get("tokenizer.ggml.precompiled_charsmap", []))
    except TypeError:
        raise TokenizerError(
            "tokenizer.ggml.precompiled_charsmap is not a list of bytes; convert the model again"
        ) from None


def _flag(metadata: Mapping[str, Any], name: str, default: bool) -> bool:
    return bool(metadata.get(f"tokenizer.ggml.{name}", default))


def _user_defined(vocabulary: Vocabulary) -> dict[str, int]:
    return {vocabulary.texts[token]: token for token in vocabulary.ids(Kind.USER_DEFINED) if vocabulary.texts[token]}


def _with_spaces(vocabulary: Vocabulary) -> Vocabulary:
    """User-defined tokens as they stand in text: some converters write their spaces as "▁"."""
    texts = vocabulary.texts
    written = {token: texts[token] for token in vocabulary.ids(Kind.USER_DEFINED) if SPACE in texts[token]}
    return vocabulary.with_texts({token: text.replace(SPACE, " ") for token, text in written.items()})


def _strips(metadata: Mapping[str, Any], vocabulary: Vocabulary) -> dict[int, Strip]:
    """Phi-3's markers swallow the white space that follows, which GGUF has no key for."""
    name = str(metadata.get("general.name", "")).lower()
    if "phi-3" not in name and "phi3" not in name:
        return {}
    kept = {"<unk>", "<s>", "<|endoftext|>"}
    markers = vocabulary.ids(Kind.CONTROL, Kind.USER_DEFINED, Kind.UNKNOWN)
    return {token: Strip(right=True) for token in markers if vocabulary.texts[token] not in kept}
