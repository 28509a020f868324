"""Tokens of the two real models against an independent engine's, and text back from them unchanged."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pie_edge.errors import TokenizerError
from pie_edge.tokenizer import ChatTemplate, Detokenizer, Tokenizer
from pie_edge.weights.gguf import read_gguf
from tests.conftest import oracle

MODELS = ("smollm2", "gemma3")
Metadata = Mapping[str, Any]


@pytest.fixture(scope="module")
def metadata(smollm2_path: Path, gemma3_path: Path) -> dict[str, Metadata]:
    return {"smollm2": read_gguf(smollm2_path).metadata, "gemma3": read_gguf(gemma3_path).metadata}


@pytest.fixture(scope="module")
def tokenizers(metadata: dict[str, Metadata]) -> dict[str, Tokenizer]:
    return {name: Tokenizer.from_gguf(keys) for name, keys in metadata.items()}


CASES = [(model, case) for model in MODELS for case in oracle(f"{model}-tokens")]


@pytest.mark.parametrize(("model", "case"), CASES)
def test_ids_are_the_oracles_in_both_columns(
    model: str, case: dict[str, Any], tokenizers: dict[str, Tokenizer]
) -> None:
    tokenizer = tokenizers[model]
    assert tokenizer.encode(case["text"], special=True) == case["ids_with_special_parsed"]
    assert tokenizer.encode(case["text"]) == case["ids_plain"]
    assert tokenizer.decode(case["ids_plain"]) == case["text"]
    assert tokenizer.decode(case["ids_with_special_parsed"], special=True) == case["text"]


@pytest.mark.parametrize("model", MODELS)
def test_prompts_and_continuations_are_the_oracles(
    model: str, tokenizers: dict[str, Tokenizer], metadata: dict[str, Metadata]
) -> None:
    tokenizer = tokenizers[model]
    for case in oracle(f"{model}-greedy"):
        if case["chat"]:
            template = ChatTemplate.from_gguf(metadata[model], tokenizer)
            ids = template.encode(tokenizer, [{"role": "user", "content": case["prompt"]}])
        else:
            ids = tokenizer.prefix() + tokenizer.encode(case["prompt"])
        assert ids == case["prompt_ids"]
        assert tokenizer.decode(case["greedy_ids"], special=True, continued=True) == case["greedy_text"]


def test_special_tokens_are_what_the_files_declare_and_their_vocabularies_hold(
    tokenizers: dict[str, Tokenizer],
) -> None:
    smollm2, gemma3 = tokenizers["smollm2"], tokenizers["gemma3"]
    assert (smollm2.bos, smollm2.eos, smollm2.adds_bos, smollm2.prefix(), smollm2.size) == (1, 2, False, [], 49152)
    assert smollm2.stop_tokens == {smollm2.control("<|endoftext|>"), smollm2.control("<|im_end|>")} == {0, 2}
    assert (gemma3.bos, gemma3.eos, gemma3.adds_bos, gemma3.prefix(), gemma3.size) == (2, 1, True, [2], 262144)
    # "</s>" is a tag of HTML in this vocabulary, and ends nothing.
    assert gemma3.stop_tokens == {gemma3.control("<eos>"), gemma3.control("<end_of_turn>")} == {1, 106}


def can_express(tokenizer: Tokenizer) -> Callable[[str], bool]:
    """Whether a vocabulary has tokens for all bytes of a character."""
    known = {data[0] for data in tokenizer.vocabulary() if len(data) == 1}
    return lambda character: known.issuperset(character.encode())


anything = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
AWKWARD = [*" \t\n\r▁<>|/_-'09azÉé½日한👩🏽\u200d\ufe0f\u0301\u00a0\0", "  ", "<|im_end|>", "<eos>", "</div>"]
awkward = st.lists(st.sampled_from(AWKWARD), max_size=40).map("".join)


@settings(max_examples=300, deadline=None)
@given(text=anything | awkward)
def test_any_text_comes_back_from_gemma(text: str, tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers["gemma3"]
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.decode(tokenizer.encode(text, special=True), special=True) == text


@settings(max_examples=300, deadline=None)
@given(text=anything | awkward)
def test_any_text_comes_back_from_smollm2_but_for_what_it_has_no_bytes_for(
    text: str, tokenizers: dict[str, Tokenizer]
) -> None:
    tokenizer = tokenizers["smollm2"]
    expressible = can_express(tokenizer)
    expected = "".join(c if expressible(c) else "\N{REPLACEMENT CHARACTER}" for c in text)
    assert tokenizer.decode(tokenizer.encode(text)) == expected
    assert tokenizer.decode(tokenizer.encode(text, special=True), special=True) == expected


def test_smollm2_lacks_only_six_control_characters_and_unassigned_planes(tokenizers: dict[str, Tokenizer]) -> None:
    expressible = can_express(tokenizers["smollm2"])
    lacking = [c for c in map(chr, range(0x110000)) if not 0xD800 <= ord(c) < 0xE000 and not expressible(c)]
    assert [c for c in lacking if ord(c) < 0x40000] == ["\x04", "\x06", "\x13", "\x14", "\x16", "\x1d"]
    assert {ord(c) >> 16 for c in lacking if ord(c) >= 0x40000} == set(range(4, 12))
    assert {unicodedata.category(c) for c in lacking if ord(c) >= 0x40000} == {"Cn"}


@settings(max_examples=150, deadline=None)
@given(text=anything | awkward, model=st.sampled_from(MODELS), special=st.booleans(), data=st.data())
def test_pieces_are_whole_characters_and_add_up_wherever_generation_is_cut(
    text: str, model: str, special: bool, data: st.DataObject, tokenizers: dict[str, Tokenizer]
) -> None:
    tokenizer = tokenizers[model]
    ids = tokenizer.encode(text, special=special)
    ids = ids[: data.draw(st.integers(0, len(ids)))]
    detokenizer = Detokenizer(tokenizer, special=special)
    pieces = [detokenizer.push(token) for token in ids]
    whole = tokenizer.decode(ids, special=special)
    assert "".join(pieces) + detokenizer.flush() == whole
    # Until the flush, nothing of a character that is cut has been shown, and nothing shown was wrong.
    raw = b"".join(tokenizer.token_bytes(token) for token in ids)
    assert "".join(pieces) == raw.decode(errors="ignore")


@settings(max_examples=100, deadline=None)
@given(model=st.sampled_from(MODELS), data=st.data())
def test_any_tokens_at_all_detokenize_to_their_decoding(
    model: str, data: st.DataObject, tokenizers: dict[str, Tokenizer]
) -> None:
    tokenizer = tokenizers[model]
    ids = data.draw(st.lists(st.integers(0, tokenizer.size - 1) | st.integers(200, 500), max_size=30))
    detokenizer = Detokenizer(tokenizer)
    assert "".join(map(detokenizer.push, ids)) + detokenizer.flush() == tokenizer.decode(ids)


def test_a_token_that_ends_inside_a_character_shows_nothing_until_the_character_is_whole(
    tokenizers: dict[str, Tokenizer],
) -> None:
    for tokenizer in tokenizers.values():
        ids = tokenizer.encode("\N{MATHEMATICAL BOLD FRAKTUR CAPITAL A}")
        assert len(ids) > 1
        detokenizer = Detokenizer(tokenizer)
        pieces = [detokenizer.push(token) for token in ids]
        assert pieces == [""] * (len(ids) - 1) + ["\N{MATHEMATICAL BOLD FRAKTUR CAPITAL A}"]
        cut = Detokenizer(tokenizer)
        assert cut.push(ids[0]) + cut.flush() == "\N{REPLACEMENT CHARACTER}"


NEEDED = {
    "smollm2": {"tokenizer.ggml.model", "tokenizer.ggml.tokens", "tokenizer.ggml.merges"},
    "gemma3": {"tokenizer.ggml.model", "tokenizer.ggml.tokens", "tokenizer.ggml.scores"},
}
KEYS = {
    "smollm2": "model pre tokens token_type merges bos_token_id eos_token_id unknown_token_id padding_token_id "
    "add_space_prefix add_bos_token",
    "gemma3": "model pre tokens scores token_type bos_token_id eos_token_id unknown_token_id padding_token_id "
    "add_bos_token add_sep_token add_eos_token add_space_prefix",
}
SAMPLE = "Hello,  world! It's 12345 naïve 日本語 👩‍👧\n\n\tdef f(x):\r\n    return x  "


@pytest.mark.parametrize(("model", "key"), [(m, f"tokenizer.ggml.{key}") for m in MODELS for key in KEYS[m].split()])
def test_without_a_key_text_comes_back_or_the_key_is_named(model: str, key: str, metadata: dict[str, Metadata]) -> None:
    assert key in metadata[model]
    rest = {name: metadata[model][name] for name in metadata[model] if name != key}
    if key in NEEDED[model]:
        with pytest.raises(TokenizerError, match=key):
            Tokenizer.from_gguf(rest)
    else:
        tokenizer = Tokenizer.from_gguf(rest)
        assert tokenizer.decode(tokenizer.encode(SAMPLE)) == SAMPLE
        assert tokenizer.stop_tokens
