"""Control and user-defined tokens: when text is matched with them, and which of them end a turn."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pie_edge.errors import InvalidHandle, TokenizerError
from pie_edge.tokenizer import Detokenizer, Tokenizer
from pie_edge.tokenizer.markers import Markers, Strip
from pie_edge.tokenizer.vocabulary import Kind
from tests.support.vocabularies import as_letters, byte_level, sentencepiece

CONTROL = ["<s>", "</s>", "<|end|>", "<|user|>"]
TOKENIZER = Tokenizer.from_gguf(byte_level(CONTROL, user_defined=["<tool>", "\n\n"], bos_token_id=0, eos_token_id=1))


def split(text: str, *markers: str, strips: dict[int, Strip] | None = None) -> list[str | int]:
    return list(Markers({marker: n for n, marker in enumerate(markers)}, strips).split(text))


def test_the_leftmost_marker_is_taken_and_the_longest_of_several() -> None:
    assert split("abcd", "ab", "bcd", "abc") == [2, "d"]
    assert split("x<|a|>y<|a", "<|a|>") == ["x", 0, "y<|a"]
    assert split("  a    ", "  ", "    ") == [0, "a", 1]
    assert split("aaa", "a") == [0, 0, 0]
    assert split("text") == ["text"]
    assert split("", "a") == []


def test_markers_swallow_white_space_on_the_sides_they_say() -> None:
    strips = {0: Strip(right=True), 1: Strip(left=True)}
    assert split("a <x> \n b <y> c", "<x>", "<y>", strips=strips) == ["a ", 0, "b", 1, " c"]
    assert split("<x>   ", "<x>", "  ", strips=strips) == [0]


@given(st.text("<|abé>", max_size=30), st.lists(st.text("<|abé>", min_size=1, max_size=4), unique=True, max_size=6))
def test_splitting_loses_nothing_and_leaves_no_marker_behind(text: str, markers: list[str]) -> None:
    parts = split(text, *markers)
    assert "".join(part if isinstance(part, str) else markers[part] for part in parts) == text
    assert not any(marker in part for part in parts if isinstance(part, str) for marker in markers)


def test_control_tokens_are_matched_only_on_request_and_user_defined_ones_always() -> None:
    text = "<|user|>hi<tool>\n\n</s>"
    ids = TOKENIZER.encode(text, special=True)
    assert [ids[0], ids[3], ids[4], ids[5]] == [3, 4, 5, 1]
    plain = TOKENIZER.encode(text)
    assert not set(plain) & {0, 1, 2, 3}
    assert {4, 5} <= set(plain)
    assert TOKENIZER.decode(plain) == text


def test_control_tokens_are_hidden_in_text_unless_asked_for() -> None:
    ids = TOKENIZER.encode("<|user|>hi</s>", special=True)
    assert TOKENIZER.decode(ids) == "hi"
    assert TOKENIZER.decode(ids, special=True) == "<|user|>hi</s>"
    assert [TOKENIZER.kind(token) for token in (0, 4, 6)] == [Kind.CONTROL, Kind.USER_DEFINED, Kind.NORMAL]


def test_a_control_token_between_the_bytes_of_a_character_does_not_break_it() -> None:
    first, *rest = TOKENIZER.encode("é")
    ids = [first, 0, *rest]
    detokenizer = Detokenizer(TOKENIZER)
    assert [*map(detokenizer.push, ids), detokenizer.flush()] == ["", "", "é", ""]


def test_merges_into_control_tokens_are_left_out() -> None:
    merges = [("<", "s"), ("<s", ">")]
    metadata = byte_level(CONTROL, merges=merges, pre="superbpe")
    # The last token, which the merges make, is taken out: only the control token of that name is left.
    metadata["tokenizer.ggml.tokens"] = metadata["tokenizer.ggml.tokens"][:-1]
    metadata["tokenizer.ggml.token_type"] = metadata["tokenizer.ggml.token_type"][:-1]
    tokenizer = Tokenizer.from_gguf(metadata)
    assert [tokenizer.token_bytes(token) for token in tokenizer.encode("<s>")] == [b"<s", b">"]


def test_a_merge_that_is_no_pair_is_refused() -> None:
    metadata = byte_level() | {"tokenizer.ggml.merges": ["ab"]}
    with pytest.raises(TokenizerError, match="merges holds 'ab', which is not two tokens"):
        Tokenizer.from_gguf(metadata)


@pytest.mark.parametrize("token", [-1, len(TOKENIZER.vocabulary()), 10**9])
def test_ids_outside_the_vocabulary_are_refused(token: int) -> None:
    for use in (TOKENIZER.token_bytes, lambda t: TOKENIZER.decode([t]), Detokenizer(TOKENIZER).push):
        with pytest.raises(InvalidHandle, match=f"token {token} is outside the model's vocabulary of 0 to"):
            use(token)


def test_a_lone_surrogate_is_refused_by_name_and_place() -> None:
    for special in (True, False):
        with pytest.raises(TokenizerError, match=r"lone surrogate U\+D83D at character 2"):
            TOKENIZER.encode("ab\ud83d", special=special)


def test_the_vocabulary_has_the_bytes_of_every_token() -> None:
    tokenizer = Tokenizer.from_gguf(byte_level(["<s>"], ["é"], merges=[(as_letters("a"), as_letters("b"))]))
    vocabulary = tokenizer.vocabulary()
    assert (vocabulary[0], vocabulary[1], vocabulary[-1]) == (b"<s>", "é".encode(), b"ab")
    assert sorted(vocabulary[2:-1]) == [bytes([byte]) for byte in range(256)]


STOPS: list[tuple[list[str], dict[str, Any], set[int]]] = [
    (["<|im_start|>", "<|im_end|>", "<|endoftext|>"], {}, {1, 2}),
    (["<|begin_of_text|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"], {"eos_token_id": 1}, {1, 2, 3}),
    (["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"], {"eos_token_id": 1}, {1, 3}),
    (["<s>", "[INST]", "[/INST]", "</s>"], {"eos_token_id": 3}, {3}),
    (["<|user|>", "<|assistant|>", "<|end|>"], {}, {2}),
    (["<|user|>", "<|observation|>", "<|endoftext|>"], {"eot_token_id": 0}, {0, 2}),
    # Harmony: <|end|> closes a message, <|return|> and <|call|> the turn.
    (["<|end|>", "<|return|>", "<|call|>"], {}, {1, 2}),
    (["<custom>"], {"eos_token_id": 0}, {0}),
    ([], {}, set()),
]


@pytest.mark.parametrize(("control", "keys", "expected"), STOPS)
def test_every_control_token_that_ends_a_turn_stops(
    control: list[str], keys: dict[str, Any], expected: set[int]
) -> None:
    assert Tokenizer.from_gguf(byte_level(control, **keys)).stop_tokens == expected


def test_an_end_that_is_no_control_token_in_this_vocabulary_does_not_stop() -> None:
    assert Tokenizer.from_gguf(byte_level(["<eos>"], ["</s>"])).stop_tokens == {0}


def test_a_declared_end_becomes_a_control_token_whatever_its_type() -> None:
    tokenizer = Tokenizer.from_gguf(byte_level([], ["<fin>"], eos_token_id=0))
    assert tokenizer.stop_tokens == {0}
    assert 0 not in tokenizer.encode("<fin>")
    assert tokenizer.encode("<fin>", special=True) == [0]


def test_a_role_that_a_file_declares_as_nobodys_is_nobodys() -> None:
    tokenizer = Tokenizer.from_gguf(byte_level(["<s>"], bos_token_id=0xFFFFFFFF, add_bos_token=True))
    assert (tokenizer.bos, tokenizer.prefix()) == (None, [])


def test_phi_3s_markers_swallow_the_white_space_after_them() -> None:
    metadata = sentencepiece({"▁": -1}, ["<s>", "<|user|>"], add_space_prefix=False, bos_token_id=1)
    phi = Tokenizer.from_gguf(metadata | {"general.name": "Phi-3 mini"})
    other = Tokenizer.from_gguf(metadata | {"general.name": "Other"})
    assert phi.decode(phi.encode("<|user|>\n hi", special=True), special=True) == "<|user|>hi"
    assert other.decode(other.encode("<|user|>\n hi", special=True), special=True) == "<|user|>\n hi"


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(["gpt2", "llama", "t5"]), st.data())
def test_metadata_of_any_type_makes_a_tokenizer_or_a_typed_error(family: str, data: st.DataObject) -> None:
    metadata = byte_level(CONTROL) if family == "gpt2" else sentencepiece({"▁": -1.0, "a": -2.0}, model=family)
    keys = "model pre tokens token_type merges scores bos_token_id add_bos_token unknown_token_id precompiled_charsmap"
    key = "tokenizer.ggml." + data.draw(st.sampled_from(keys.split()))
    scalar = (
        st.none()
        | st.booleans()
        | st.integers(-(2**70), 2**70)
        | st.floats()
        | st.text(max_size=4)
        | st.binary(max_size=4)
    )
    metadata[key] = data.draw(
        scalar | st.lists(scalar, max_size=4) | st.dictionaries(st.text(max_size=2), scalar, max_size=2)
    )
    try:
        tokenizer = Tokenizer.from_gguf(metadata)
    except TokenizerError:
        return
    assert tokenizer.decode(tokenizer.encode("a <s>")) == "a <s>"


@pytest.mark.parametrize("family", ["gpt2", "llama", "t5"])
@pytest.mark.parametrize("role", ["bos", "eos", "eot"])
def test_a_byte_with_a_role_can_still_be_written(family: str, role: str) -> None:
    for token in range(1, 260 if family == "t5" else 258):
        metadata = byte_level(CONTROL) if family == "gpt2" else sentencepiece({"▁": -1.0, "a": -2.0}, model=family)
        tokenizer = Tokenizer.from_gguf(metadata | {f"tokenizer.ggml.{role}_token_id": token})
        assert tokenizer.decode(tokenizer.encode("a <s>")) == "a <s>"


def test_a_merge_of_what_is_no_token_is_left_out() -> None:
    metadata = byte_level(merges=[("<", "s")]) | {"tokenizer.ggml.merges": ["< s", "<x s"]}
    metadata["tokenizer.ggml.tokens"] = [*metadata["tokenizer.ggml.tokens"], "<xs"]
    metadata["tokenizer.ggml.token_type"] = [*metadata["tokenizer.ggml.token_type"], 1]
    assert Tokenizer.from_gguf(metadata).decode(Tokenizer.from_gguf(metadata).encode("<xs<s")) == "<xs<s"
