"""Unigram vocabularies, as T5 has them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pie_edge.errors import TokenizerError
from pie_edge.tokenizer import Tokenizer
from tests.support.vocabularies import sentencepiece

SCORES = {"▁": -4.0, "a": -3.0, "b": -3.5, "ab": -4.0, "▁a": -5.0, "bab": -9.0}


def unigram(**keys: Any) -> Tokenizer:
    return Tokenizer.from_gguf(sentencepiece(SCORES, ["</s>", "<extra>"], model="t5", unknown_token_id=0, **keys))


def pieces(tokenizer: Tokenizer, text: str, special: bool = False) -> list[bytes]:
    return [tokenizer.token_bytes(token) for token in tokenizer.encode(text, special=special)]


def test_the_pieces_with_the_best_sum_of_scores_are_taken() -> None:
    # " a" + "bab" costs 14, " " + "ab" + "ab" 12, " a" + "b" + "ab" 12.5.
    assert pieces(unigram(), "abab") == [b" ", b"ab", b"ab"]


def test_control_tokens_in_text_are_text_unless_asked_for() -> None:
    tokenizer = unigram(add_space_prefix=False)
    assert pieces(tokenizer, "a</s>", special=True) == [b"a", b"</s>"]
    assert tokenizer.control("</s>") not in tokenizer.encode("a</s>")
    assert tokenizer.decode(tokenizer.encode("a</s>")) == "a</s>"


def test_extra_spaces_go_if_the_file_says_so() -> None:
    assert unigram(remove_extra_whitespaces=True).encode("  a   b ") == unigram().encode("a b")
    assert unigram().decode(unigram(remove_extra_whitespaces=True).encode("  a   b ")) == "a b"


@given(text=st.text(st.sampled_from(" abé日\n"), max_size=20))
def test_text_comes_back_where_nothing_is_normalised(text: str) -> None:
    for prefix in (True, False):
        tokenizer = unigram(add_space_prefix=prefix)
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_eos_ends_a_turn_and_no_bos_starts_a_text() -> None:
    tokenizer = unigram()
    assert (tokenizer.eos, set(tokenizer.stop_tokens), tokenizer.prefix()) == (1, {1}, [])


@pytest.mark.parametrize("key", ["scores", "unknown_token_id"])
def test_a_missing_key_is_named(key: str) -> None:
    metadata = sentencepiece(SCORES, model="t5", unknown_token_id=0)
    del metadata[f"tokenizer.ggml.{key}"]
    # Without types, nothing tells the unknown token either.
    metadata["tokenizer.ggml.token_type"] = [1] * len(metadata["tokenizer.ggml.tokens"])
    with pytest.raises(TokenizerError, match=key):
        Tokenizer.from_gguf(metadata)


def test_a_damaged_character_map_is_refused() -> None:
    with pytest.raises(TokenizerError, match="Unigram tokenizer can't be built"):
        unigram(precompiled_charsmap=[1, 2, 3])
