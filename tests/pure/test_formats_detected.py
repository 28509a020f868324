"""Which formats the families' real templates speak, and that what a template writes for a call is read as that call."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from pie_edge.tokenizer import ChatTemplate
from pie_edge.tokenizer.formats import Decoder, Formats, detect
from pie_edge.tokenizer.formats.decoder import parameters_of
from pie_edge.tokenizer.formats.events import CallEnded, Event, Malformed, Reasoning, Text
from tests.support import chat_matrix as chat
from tests.support.chat_rendered import NAMES, fixture

EXPECTED = {
    "gemma2": Formats("gemma", "none"),
    "gemma3": Formats("gemma", "none"),
    "gpt-oss": Formats("harmony", "harmony"),
    "granite3.3": Formats("json-list", "think-response"),
    "granite4": Formats("hermes", "none"),
    "hermes2": Formats("hermes", "none"),
    "lfm2": Formats("pythonic", "none"),
    "llama3.1": Formats("llama", "none"),
    "llama3.2": Formats("llama", "none"),
    "ministral3": Formats("mistral", "brackets"),
    "mistral-nemo": Formats("mistral", "none"),
    "mistral-small3.2": Formats("mistral", "none"),
    "phi3": Formats("none", "none"),
    "phi3.5": Formats("none", "none"),
    "phi4-manner": Formats("json-list", "none"),
    "qwen2.5": Formats("hermes", "none"),
    "qwen3": Formats("hermes", "think"),
    "qwen3-coder": Formats("hermes", "none"),
    "qwen3.5": Formats("hermes", "think"),
    "r1-distill": Formats("none", "think"),
    "smollm3": Formats("none", "think"),
}


@functools.cache
def template(name: str) -> ChatTemplate:
    found = fixture(name)
    return ChatTemplate(found.source, found.tokens, clock=lambda: chat.NOW)


def test_every_template_has_its_formats() -> None:
    assert {name: detect(fixture(name).source) for name in NAMES} == EXPECTED


@pytest.mark.parametrize(
    ("source", "control", "expected"),
    [
        ("", ["<tool_call>", "<|python_tag|>", "[TOOL_CALLS]"], Formats()),
        ("{{ messages }}", [], Formats()),
        ("{{ messages }}", ["<|python_tag|>", "<think>", "</think>"], Formats()),
        ("{{ messages }}", ["[TOOL_CALLS]", "[THINK]"], Formats("mistral", "brackets")),
        ("{{ messages }}", ["<|tool_call|>", "<|/tool_call|>"], Formats("json-list")),
        ("{{ messages }}", ["<tool_call>", "</tool_call>"], Formats("hermes")),
        ("<tool_call>", ["<|python_tag|>", "[TOOL_CALLS]"], Formats("hermes")),
        ("<tool_call>{{ name }}<arg_key>", ["<tool_call>"], Formats()),
        ("<tool_call><invoke name=", ["<tool_call>"], Formats()),
        ("</think>{{ '<response>' + result }}", [], Formats("none", "think")),
    ],
)
def test_control_tokens_tell_where_the_template_is_silent(source: str, control: list[str], expected: Formats) -> None:
    assert detect(source, control) == expected


def answered(name: str, message: dict[str, Any]) -> tuple[str, list[Event]]:
    """What the template writes for the model's own turn after its opening, and what that is read as, letter by letter."""
    before = template(name).render([chat.ASK], chat.TOOLS)
    whole = template(name).render([chat.ASK, message], chat.TOOLS, False)
    assert whole.startswith(before)
    for end in ("<|im_end|>\n", "<|eot_id|>", "<|eom_id|>", "<eos>", "<|end_of_text|>\n", "<|call|>", "<|end|>"):
        whole = whole.removesuffix(end)
    written, formats = whole[len(before) :], EXPECTED[name]
    decoder = Decoder(formats, inside=formats.is_inside(before), tools=parameters_of(chat.TOOLS))
    return written, [event for letter in written for event in decoder.push(letter)] + decoder.flush()


CALLS = {
    "one": [chat.PARIS],
    "two": [chat.PARIS, chat.OSLO],
    "nested": [chat.NESTED],
    "bare": [chat.BARE],
}
CALLING = [name for name in NAMES if EXPECTED[name].calls not in ("none", "gemma") and name != "granite3.3"]
ONE_ONLY = {"llama3.1", "llama3.2", "gpt-oss"}


@pytest.mark.parametrize(
    ("name", "case"), [(name, case) for name in CALLING for case in CALLS if case != "two" or name not in ONE_ONLY]
)
def test_what_a_template_writes_for_calls_is_read_as_those_calls(name: str, case: str) -> None:
    written, events = answered(name, chat.calls(*CALLS[case]))
    assert not [event for event in events if isinstance(event, Malformed)], written
    found = [(event.name, event.arguments) for event in events if isinstance(event, CallEnded)]
    assert found == [(one["function"]["name"], one["function"]["arguments"]) for one in CALLS[case]], written
    assert not "".join(event.text for event in events if isinstance(event, Text)).strip()
    ids = [event.id for event in events if isinstance(event, CallEnded) and event.id is not None]
    assert ids in ([], [one["id"] for one in CALLS[case]])


# The others' templates write no words beside calls, or as reasoning.
@pytest.mark.parametrize("name", ["granite4", "lfm2", "ministral3", "qwen2.5", "qwen3", "qwen3-coder", "qwen3.5"])
def test_words_before_a_call_are_text(name: str) -> None:
    _, events = answered(name, chat.calls(chat.PARIS, content="I look."))
    assert "".join(event.text for event in events if isinstance(event, Text)).strip() == "I look."
    assert [event.name for event in events if isinstance(event, CallEnded)] == ["weather"]


@pytest.mark.parametrize("name", ["qwen3", "qwen3.5", "gpt-oss"])
def test_a_thought_that_a_template_writes_is_read_as_one(name: str) -> None:
    _, events = answered(name, chat.calls(chat.PARIS, **chat.THOUGHT))
    thought = "".join(event.text for event in events if isinstance(event, Reasoning))
    assert thought.strip() == chat.THOUGHT["reasoning_content"]
    assert [event.arguments for event in events if isinstance(event, CallEnded)] == [{"city": "Århus", "days": 2}]


@pytest.mark.parametrize(
    ("name", "inside"), [("qwen3.5", True), ("r1-distill", True), ("qwen3", False), ("phi3", False)]
)
def test_a_cue_that_opens_the_reasoning_is_noticed(name: str, inside: bool) -> None:
    assert EXPECTED[name].is_inside(template(name).render([chat.ASK])) is inside
    off = {"enable_thinking": False}
    assert not EXPECTED["qwen3.5"].is_inside(template("qwen3.5").render([chat.ASK], **off))
