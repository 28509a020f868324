"""Answers taken apart token by token."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pie_edge.errors import InvalidHandle
from pie_edge.tokenizer import Tokenizer
from pie_edge.tokenizer.formats import Formats, TokenDecoder, joined
from pie_edge.tokenizer.formats.decoder import Decoder
from pie_edge.tokenizer.formats.events import CallEnded, Event, Mark, Reasoning, Text
from tests.support.vocabularies import byte_level

CONTROL = ["<s>", "<|im_end|>", "<think>", "</think>", "<tool_call>"]
TOKENIZER = Tokenizer.from_gguf(
    byte_level(CONTROL, ["</tool_call>"], [("<", "t"), ("o", "o"), ("Ċ", "Ċ")], pre="superbpe")
)
FORMATS = Formats("hermes", "think")


def decode(tokens: list[int]) -> list[Event]:
    decoder = TokenDecoder(TOKENIZER, FORMATS)
    return joined([*(event for token in tokens for event in decoder.push(token)), *decoder.flush()])


def test_tokens_give_what_their_text_gives() -> None:
    text = '<think>\né日🎌\n</think>\n\nI look.<tool_call>{"name": "f", "arguments": {"a": "</tool_call>"}}</tool_call>'
    plain = Decoder(FORMATS)
    assert decode(TOKENIZER.encode(text, special=True)) == joined([*plain.push(text), *plain.flush()])


def test_markers_that_are_control_tokens_count_as_those_alone() -> None:
    spelled = TOKENIZER.encode('<think>a</think><tool_call>{"name": "f"}', special=False)
    assert decode(spelled) == [Text('<think>a</think><tool_call>{"name": "f"}')]
    call = [*TOKENIZER.encode("<tool_call>", special=True), *TOKENIZER.encode('{"name": "f"}</tool_call>')]
    assert [event.name for event in decode(call) if isinstance(event, CallEnded)] == ["f"]


def test_a_control_token_in_the_reasoning_is_part_of_it() -> None:
    ids = TOKENIZER.encode('<think>a <tool_call>\n{"name": "f"}</think>b', special=True)
    assert [event for event in decode(ids) if not isinstance(event, Mark)] == [
        Reasoning('a <tool_call>\n{"name": "f"}'),
        Text("b"),
    ]


def test_where_calls_are_text_their_markers_vanish_as_control_tokens_do() -> None:
    decoder = TokenDecoder(TOKENIZER, FORMATS, calls=False)
    ids = TOKENIZER.encode("<think>a</think>b<tool_call> {}</tool_call>", special=True)
    found = joined([*(event for token in ids for event in decoder.push(token)), *decoder.flush()])
    assert [event for event in found if not isinstance(event, Mark)] == [Reasoning("a"), Text("b {}</tool_call>")]


def test_other_control_tokens_vanish_and_characters_stay_whole() -> None:
    ids = TOKENIZER.encode("<think>日<|im_end|>", special=True)
    assert [event for event in decode(ids) if isinstance(event, Reasoning)] == [Reasoning("日")]
    assert decode(ids[:-2])[-1] == Reasoning("\ufffd")
    with pytest.raises(InvalidHandle, match="token 9999 is outside"):
        TokenDecoder(TOKENIZER, FORMATS).push(9999)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([*CONTROL, "</tool_call>", '{"name": "f"}', "é日🎌", "<", "\n"]), max_size=10))
def test_no_text_is_lost(words: list[str]) -> None:
    ids = [token for word in words for token in TOKENIZER.encode(word, special=True)]
    shown = "".join(event.raw for event in decode(ids))
    assert shown == "".join(word for word in words if word not in ("<s>", "<|im_end|>"))
