"""SentencePiece BPE in plain Python against the ``tokenizers`` library, and its rules case by case."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library
from tokenizers import models, normalizers

from pie_edge.errors import TokenizerError
from pie_edge.tokenizer import Tokenizer
from tests.support.vocabularies import sentencepiece


def pieces(tokenizer: Tokenizer, text: str, special: bool = False) -> list[bytes]:
    return [tokenizer.token_bytes(token) for token in tokenizer.encode(text, special=special)]


def library(scores: Mapping[str, float]) -> Library:
    """The same vocabulary as a list of merges, best score first."""
    merges = [
        (piece[:cut], piece[cut:])
        for piece in sorted(scores, key=lambda piece: -scores[piece])
        for cut in range(1, len(piece))
        if piece[:cut] in scores and piece[cut:] in scores
    ]
    built = Library(models.BPE({piece: n for n, piece in enumerate(scores)}, merges))
    built.normalizer = normalizers.Replace(" ", "▁")
    return built


@settings(max_examples=300, deadline=None)
@given(
    longer=st.lists(st.text("ab▁", min_size=2, max_size=5), unique=True, max_size=25),
    order=st.randoms(use_true_random=False),
    text=st.text("ab ", max_size=70),
)
def test_pieces_are_those_of_the_library_with_merges_derived_from_the_scores(
    longer: list[str], order: object, text: str
) -> None:
    # Where a piece repeats itself ("aaa"), which of its splits meets first depends on the place in the text, and a list
    # of merges can't say so.
    names = ["a", "b", "▁", *(piece for piece in longer if not repeats(piece))]
    order.shuffle(names)  # type: ignore[attr-defined]
    scores = {piece: -float(n) for n, piece in enumerate(names)}
    ours = Tokenizer.from_gguf(sentencepiece(scores, add_space_prefix=False))
    theirs = library(scores)
    assert [piece.decode().replace(" ", "▁") for piece in pieces(ours, text)] == theirs.encode(text).tokens


def repeats(piece: str) -> bool:
    return any(piece.startswith(piece[shift:]) for shift in range(1, len(piece)))


def test_the_leftmost_of_equal_scores_merges_first() -> None:
    tokenizer = Tokenizer.from_gguf(sentencepiece({"a": -9, "aa": -1}, add_space_prefix=False))
    assert pieces(tokenizer, "aaa") == [b"aa", b"a"]
    tied = Tokenizer.from_gguf(sentencepiece({"a": -9, "b": -9, "c": -9, "ab": -1, "bc": -1}, add_space_prefix=False))
    assert pieces(tied, "abc") == [b"ab", b"c"]


def test_a_better_score_further_right_goes_first() -> None:
    scores = {"a": -9, "b": -9, "c": -9, "ab": -2, "bc": -1}
    assert pieces(Tokenizer.from_gguf(sentencepiece(scores, add_space_prefix=False)), "abc") == [b"a", b"bc"]


def test_tokens_that_go_on_over_a_space_are_found() -> None:
    scores = {">": -9, "▁": -9, "<": -9, ">▁": -2, ">▁<": -1}
    tokenizer = Tokenizer.from_gguf(sentencepiece(scores, add_space_prefix=False))
    assert pieces(tokenizer, "> <") == [b"> <"]
    assert pieces(tokenizer, ">  <") == [b"> ", b" ", b"<"]


def test_what_has_no_token_becomes_bytes() -> None:
    tokenizer = Tokenizer.from_gguf(sentencepiece({"▁": -1, "x": -2}, add_space_prefix=False))
    assert pieces(tokenizer, "x é") == [b"x", b" ", b"\xc3", b"\xa9"]


def test_without_byte_tokens_unknown_characters_are_unknown_tokens_and_decode_to_replacements() -> None:
    tokenizer = Tokenizer.from_gguf(sentencepiece({"▁": -1, "x": -2}, byte_fallback=False, unknown_token_id=0))
    assert tokenizer.encode("xéx") == [3, 4, 0, 4]
    assert tokenizer.decode(tokenizer.encode("xéx")) == "x\N{REPLACEMENT CHARACTER}x"


def test_a_vocabulary_without_byte_tokens_and_unknown_token_is_refused() -> None:
    metadata = sentencepiece({"x": -1}, byte_fallback=False)
    metadata["tokenizer.ggml.token_type"][0] = 1
    with pytest.raises(TokenizerError, match="neither byte tokens nor an unknown token"):
        Tokenizer.from_gguf(metadata)


SPACED = {"▁": -9, "x": -9, "y": -9, "▁x": -1}


def test_a_space_goes_before_each_stretch_of_text_and_is_taken_away_again() -> None:
    tokenizer = Tokenizer.from_gguf(sentencepiece(SPACED))
    assert pieces(tokenizer, "x") == [b" x"]
    assert pieces(tokenizer, " x") == [b" ", b" x"]
    assert pieces(tokenizer, "x</s>x", special=True) == [b" x", b"</s>", b" x"]
    for text in ("", "x", " x", "  x", "x</s>x", "x</s> x", "</s>", "</s>  "):
        assert tokenizer.decode(tokenizer.encode(text, special=True), special=True) == text
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_tokens_that_continue_a_text_keep_their_leading_space() -> None:
    tokenizer = Tokenizer.from_gguf(sentencepiece(SPACED))
    ids = tokenizer.encode("x x")
    assert tokenizer.decode(ids) == "x x"
    assert tokenizer.decode(ids[1:], continued=True) == " x"


def test_a_file_may_ask_for_no_space_before_texts() -> None:
    tokenizer = Tokenizer.from_gguf(sentencepiece(SPACED, add_space_prefix=False))
    assert pieces(tokenizer, "x x") == [b"x", b" x"]


@pytest.mark.parametrize("prefix", [True, False])
@settings(max_examples=150, deadline=None)
@given(text=st.text(st.sampled_from("xy ▁é</s>"), max_size=20) | st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_comes_back_also_with_the_character_that_stands_for_a_space(prefix: bool, text: str) -> None:
    tokenizer = Tokenizer.from_gguf(sentencepiece(SPACED, user_defined=["  ", "▁▁▁", "<x>"], add_space_prefix=prefix))
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.decode(tokenizer.encode(text, special=True), special=True) == text


def test_user_defined_tokens_are_found_in_any_text_with_their_spaces_as_spaces() -> None:
    tokenizer = Tokenizer.from_gguf(sentencepiece(SPACED, user_defined=["▁▁▁", "<x>"], add_space_prefix=False))
    assert pieces(tokenizer, "y   y<x>") == [b"y", b"   ", b"y", b"<x>"]


def test_text_never_merges_into_a_control_or_byte_token() -> None:
    scores = {"<": -9, "s": -9, ">": -9, "0": -9, "x": -9, "4": -9, "1": -9, "<s": -1, "<0": -1, "x4": -1, "1>": -1}
    scores |= {"<0x4": -1}
    tokenizer = Tokenizer.from_gguf(sentencepiece(scores, add_space_prefix=False))
    assert pieces(tokenizer, "<s>") == [b"<s", b">"]
    assert pieces(tokenizer, "<0x41>") == [b"<0x4", b"1>"]
    assert tokenizer.encode("<s>", special=True) == [1]


def test_a_long_text_without_spaces_takes_no_quadratic_time() -> None:
    tokenizer = Tokenizer.from_gguf(sentencepiece({"a": -9, "aa": -2, "aaaa": -1}, add_space_prefix=False))
    # Quadratic work on this would take minutes, past the test's time limit.
    assert len(tokenizer.encode("a" * 400_000)) == 100_000


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("scores", [0.0], "scores has 1 entries for"),
        ("token_type", [1], "token_type has 1 entries for"),
        ("token_type", "abc", "no token types"),
        ("tokens", [], "tokens is empty"),
        ("tokens", "abc", "not a list of strings"),
        ("tokens", [1, 2], "not a list of strings"),
        ("bos_token_id", 10**6, "bos_token_id is 1000000, but the vocabulary has tokens 0 to"),
        ("eos_token_id", "x", "eos_token_id is 'x'"),
        ("model", "new", "of the kind 'new'.*known are gpt2, llama, t5"),
    ],
)
def test_damaged_metadata_is_refused_with_the_key_and_what_is_wrong(key: str, value: object, message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        Tokenizer.from_gguf(sentencepiece({"x": -1}) | {f"tokenizer.ggml.{key}": value})
