"""The families' formats of reasoning and calls: what an answer is made of, however it is cut."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pie_edge.errors import UsageError
from pie_edge.tokenizer.formats import Decoder, Formats, joined
from pie_edge.tokenizer.formats.detect import CALLS, REASONING
from pie_edge.tokenizer.formats.events import (
    Arguments,
    CallBegun,
    CallEnded,
    Event,
    Malformed,
    Mark,
    Reasoning,
    Text,
)

HERMES, LLAMA, MISTRAL = Formats("hermes", "think"), Formats("llama"), Formats("mistral", "brackets")
HARMONY, GEMMA, LFM = Formats("harmony", "harmony"), Formats("gemma"), Formats("pythonic", "think")
GRANITE, THINK, NOTHING = Formats("json-list", "think-response"), Formats("none", "think"), Formats()

ALL = [HERMES, LLAMA, MISTRAL, HARMONY, GEMMA, LFM, GRANITE, THINK, NOTHING]


def decode(formats: Formats, pieces: Sequence[str], **settings: Any) -> list[Event]:
    decoder = Decoder(formats, **settings)
    found = [event for piece in pieces for event in decoder.push(piece)]
    return joined([*found, *decoder.flush()])


def summary(events: Sequence[Event]) -> list[Any]:
    """Without marks and pieces of arguments, which must add up to the calls' arguments."""
    found: list[Any] = []
    for event in events:
        match event:
            case Text() | Reasoning():
                event.text.encode()
                found.append((type(event).__name__.lower(), event.text))
            case CallEnded():
                written = [one.text for one in events if isinstance(one, Arguments) and one.index == event.index]
                assert json.loads("".join(written).encode()) == event.arguments
                begun = [one for one in events if isinstance(one, CallBegun) and one.index == event.index]
                assert [one.name for one in begun] == [event.name]
                found.append(
                    (event.name, event.arguments) if event.id is None else (event.name, event.arguments, event.id)
                )
            case Malformed():
                found.append(("malformed", event.text))
            case _:
                pass
    return found


F = ("f", {"a": 1})
CASES: list[tuple[str, Formats, str, list[Any]]] = [
    ("plain text", HERMES, "Hello <b>there</b>", [("text", "Hello <b>there</b>")]),
    ("nothing", HERMES, "", []),
    ("a thought", HERMES, "<think>\nHm.\n</think>\n\nYes.", [("reasoning", "Hm.\n"), ("text", "Yes.")]),
    ("an empty thought", HERMES, "<think>\n\n</think>\n\nYes.", [("text", "Yes.")]),
    ("a thought without end", HERMES, "<think>Hm. </thin", [("reasoning", "Hm. </thin")]),
    (
        "a call",
        HERMES,
        'I look.\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>',
        [("text", "I look.\n"), F],
    ),
    (
        "two calls, and an end inside a string",
        HERMES,
        (
            '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>\n'
            '<tool_call>{"name": "g", "arguments": {"b": "</tool_call>\\" }"}}</tool_call>done'
        ),
        [F, ("g", {"b": '</tool_call>" }'}), ("text", "done")],
    ),
    ("arguments first", HERMES, '<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call>', [F]),
    ("arguments as text", HERMES, '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>', [F]),
    ("no arguments", HERMES, '<tool_call>{"name": "f"}</tool_call>', [("f", {})]),
    ("an id", HERMES, '<tool_call>{"id": "x", "name": "f", "arguments": {"a": 1}}</tool_call>', [(*F, "x")]),
    ("no end", HERMES, '<tool_call>\n{"name": "f", "arguments": {"a": 1}}', [F]),
    (
        "one brace too many",
        HERMES,
        '<tool_call>\n{"name": "f", "arguments": {"a": 1}}}\n</tool_call>',
        [F, ("text", "}\n")],
    ),
    (
        "a call cut short",
        HERMES,
        '<tool_call>\n{"name": "f", "arguments": {"a": ',
        [("malformed", '<tool_call>\n{"name": "f", "arguments": {"a": ')],
    ),
    (
        "no JSON",
        HERMES,
        "a<tool_call>\nf(1)\n</tool_call>b",
        [("text", "a"), ("malformed", "<tool_call>\nf(1)\n</tool_call>"), ("text", "b")],
    ),
    (
        "a broken call before a good one",
        HERMES,
        '<tool_call>{"name": <tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>',
        [("malformed", '<tool_call>{"name": '), F],
    ),
    (
        "a good call before a broken one",
        HERMES,
        '<tool_call>{"name": "f", "arguments": {"a": 1}}, {"name": 3}</tool_call>',
        [F, ("malformed", ', {"name": 3}</tool_call>')],
    ),
    (
        "arguments that are no JSON",
        HERMES,
        '<tool_call>{"name": "f", "arguments": {"a": NaN}}</tool_call>.',
        [("malformed", '<tool_call>{"name": "f", "arguments": {"a": NaN}}</tool_call>'), ("text", ".")],
    ),
    (
        "arguments that are a list",
        HERMES,
        '<tool_call>{"name": "f", "arguments": [1]}</tool_call>',
        [("malformed", '<tool_call>{"name": "f", "arguments": [1]}</tool_call>')],
    ),
    (
        "tags for parameters",
        HERMES,
        (
            "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\n  two\nlines\n</parameter>\n"
            '<parameter=c>\n{"d": [true]}\n</parameter>\n<parameter=e>\nTrue\n</parameter>\n</function>\n</tool_call>'
        ),
        [("f", {"a": 1, "b": "  two\nlines", "c": {"d": [True]}, "e": True})],
    ),
    ("tags, no parameters", HERMES, "<tool_call>\n<function=f>\n</function>\n</tool_call>", [("f", {})]),
    (
        "tags without end",
        HERMES,
        "<tool_call><function=f><parameter=a>1</tool_call>x",
        [("malformed", "<tool_call><function=f><parameter=a>1</tool_call>"), ("text", "x")],
    ),
    (
        "text that has no bytes",
        HERMES,
        '<tool_call>{"name": "f", "arguments": "{\\"a\\": \\"\\\\ud800\\"}"}</tool_call>',
        [("f", {"a": "\ud800"})],
    ),
    (
        "a name that has none",
        HERMES,
        '<tool_call>{"name": "\\ud800"}',
        [("malformed", '<tool_call>{"name": "\\ud800"}')],
    ),
    ("Python that has none", LFM, '<|tool_call_start|>[f(a="\\ud800")]<|tool_call_end|>', [("f", {"a": "\ud800"})]),
    ("Llama's", LLAMA, '{"name": "f", "parameters": {"a": 1}}', [F]),
    ("Llama's with a type", LLAMA, ' {"type": "function", "name": "f", "parameters": {"a": 1}}', [F]),
    (
        "two of Llama's",
        LLAMA,
        '{"name": "f", "parameters": {"a": 1}}; {"name": "g", "parameters": {}}',
        [F, ("g", {})],
    ),
    ("after a python tag", LLAMA, '<|python_tag|>{"name": "f", "parameters": {"a": 1}}', [F]),
    ("Python after it", LLAMA, "<|python_tag|>f.call(a=1)", [F]),
    ("code after it", LLAMA, "<|python_tag|>x = 1", [("malformed", "<|python_tag|>x = 1")]),
    ("an object that is no call", LLAMA, '{"name": "Ann", "age": 3}', [("text", '{"name": "Ann", "age": 3}')]),
    ("a name that is no text", LLAMA, '{"name": 3, "parameters": {}}', [("text", '{"name": 3, "parameters": {}}')]),
    (
        "an object later",
        LLAMA,
        'So: {"name": "f", "parameters": {"a": 1}}',
        [("text", 'So: {"name": "f", "parameters": {"a": 1}}')],
    ),
    (
        "Mistral's old",
        MISTRAL,
        '[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}, "id": "123456789"}]',
        [(*F, "123456789")],
    ),
    (
        "two of Mistral's old",
        MISTRAL,
        '[TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}]',
        [F, ("g", {})],
    ),
    (
        "Mistral's new",
        MISTRAL,
        '[THINK]Hm[/THINK]ok[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g[CALL_ID]1[ARGS]{"b": "["}',
        [("reasoning", "Hm"), ("text", "ok"), F, ("g", {"b": "["}, "1")],
    ),
    ("Mistral's without its marker", MISTRAL, '[TOOL_CALLS]f{"a": 1}', [F]),
    ("Mistral's broken", MISTRAL, "[TOOL_CALLS]f x", [("malformed", "[TOOL_CALLS]f x")]),
    (
        "harmony",
        HARMONY,
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.<|return|>",
        [("reasoning", "Hm."), ("text", "Yes.")],
    ),
    (
        "harmony, a call",
        HARMONY,
        (
            "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.f "
            '<|constrain|>json<|message|>{"a": 1}<|call|>'
        ),
        [("reasoning", "Hm."), F],
    ),
    (
        "harmony, the recipient first, no end, and words before",
        HARMONY,
        (
            "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant to=functions.f<|channel|>commentary json"
            '<|message|>{"a": 1}'
        ),
        [("text", "I look."), F],
    ),
    (
        "harmony, no arguments",
        HARMONY,
        "<|channel|>commentary to=functions.f<|message|><|call|>",
        [("f", {})],
    ),
    (
        "harmony, broken",
        HARMONY,
        "<|channel|>commentary to=functions.f<|message|>{a<|call|>",
        [("malformed", "<|channel|>commentary to=functions.f<|message|>{a<|call|>")],
    ),
    ("harmony, none", HARMONY, "Hello", [("text", "Hello")]),
    ("Gemma's Python", GEMMA, "Sure:\n```tool_code\nprint(f(a=1))\n```\nok", [("text", "Sure:\n"), F, ("text", "ok")]),
    ("Gemma's JSON", GEMMA, '```json\n{"name": "f", "parameters": {"a": 1}}\n```', [F]),
    ("Gemma's bare JSON", GEMMA, '{"name": "f", "parameters": {"a": 1}}', [F]),
    ("Gemma's other JSON", GEMMA, '```json\n{"x": 1}\n```', [("text", '```json\n{"x": 1}\n```')]),
    (
        "Gemma's broken Python",
        GEMMA,
        "```tool_code\nx = 1\n```.",
        [("malformed", "```tool_code\nx = 1\n```"), ("text", ".")],
    ),
    (
        "a fence in a fence",
        GEMMA,
        "```tool_code\nf(a=1)\n```json\n1```",
        [F, ("text", "json\n1```")],
    ),
    (
        "calls in Python",
        LFM,
        "<|tool_call_start|>[f(a=1), g(b='x', c=[1.5, None, {\"d\": true}])]<|tool_call_end|>Wait.",
        [F, ("g", {"b": "x", "c": [1.5, None, {"d": True}]}), ("text", "Wait.")],
    ),
    ("lines in a text", LFM, "<|tool_call_start|>[f(a='b\nc')]<|tool_call_end|>", [("f", {"a": "b\nc"})]),
    ("JSON instead", LFM, '<|tool_call_start|>[{"name": "f", "arguments": {"a": 1}}]<|tool_call_end|>', [F]),
    (
        "Python with a position",
        LFM,
        "<|tool_call_start|>[f(1)]<|tool_call_end|>",
        [("malformed", "<|tool_call_start|>[f(1)]<|tool_call_end|>")],
    ),
    (
        "Granite's",
        GRANITE,
        '<think>Hm</think>\n<response>ok</response><|tool_call|>[{"name": "f", "arguments": {"a": 1}}]',
        [("reasoning", "Hm"), ("text", "ok"), F],
    ),
    ("Phi's", GRANITE, '<|tool_call|>[{"name": "f", "arguments": {"a": 1}}]<|/tool_call|>', [F]),
    ("no format", NOTHING, "<think>a<tool_call>{}", [("text", "<think>a<tool_call>{}")]),
    ("thoughts alone", THINK, "<think>a</think><tool_call>", [("reasoning", "a"), ("text", "<tool_call>")]),
]


@pytest.mark.parametrize(("formats", "text", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_an_answer_is_taken_apart_however_it_is_cut(formats: Formats, text: str, expected: list[Any]) -> None:
    whole = decode(formats, [text])
    assert summary(whole) == expected
    assert "".join(event.raw for event in whole) == text
    for at in range(len(text) + 1):
        assert decode(formats, [text[:at], text[at:]]) == whole
    assert decode(formats, list(text)) == whole


WORDS = sorted(
    {marker for formats in ALL for marker in formats.markers}
    | {"<function=", "</function>", "<parameter=", "</parameter>", "f", ">", "\n", "```", "[", "]", "x = 1", "print("}
    | {'{"name": "f", "arguments": {"a": 1}}', '{"name": "f", "parameters": {}}', '{"name":', '"f"', ",", "}", "{", ";"}
    | {"f(a=1)", "to=functions.f", "analysis", "final", "commentary", "é日🎌", "\\", '"', " ", "<", "|", "Hi"}
)
answers = st.lists(st.sampled_from(WORDS) | st.text(max_size=4), max_size=14).map("".join)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(ALL), answers, st.lists(st.integers(0, 200), max_size=8), st.booleans(), st.booleans())
def test_no_cut_changes_what_is_found_and_no_character_is_lost(
    formats: Formats, text: str, cuts: list[int], inside: bool, calls: bool
) -> None:
    whole = decode(formats, [text], inside=inside, calls=calls)
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[start:end] for start, end in pairwise(places)]
    assert decode(formats, pieces, inside=inside, calls=calls) == whole
    assert decode(formats, list(text), inside=inside, calls=calls) == whole
    assert "".join(event.raw for event in whole) == text
    summary(whole)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(ALL), st.lists(st.sampled_from(WORDS) | st.text(max_size=4), max_size=14))
def test_no_cut_between_control_tokens_changes_what_is_found(formats: Formats, words: list[str]) -> None:
    def found(cut: bool) -> list[Event]:
        decoder = Decoder(formats, controls=formats.markers)
        events: list[Event] = []
        for word in words:
            if word in formats.markers:
                events += decoder.push_marker(word)
            else:
                for piece in word if cut else [word]:
                    events += decoder.push(piece)
        return joined([*events, *decoder.flush()])

    whole = found(False)
    assert found(True) == whole
    assert "".join(event.raw for event in whole) == "".join(words)
    summary(whole)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(ALL), answers)
def test_what_is_shown_is_the_text_but_for_whole_calls_and_markers(formats: Formats, text: str) -> None:
    """A malformed call is kept: its text is a stretch of the answer, with its markers."""
    for event in decode(formats, [text]):
        if isinstance(event, Malformed):
            assert event.text in text and event.text.endswith(event.raw)


@pytest.mark.parametrize("formats", ALL, ids=str)
def test_text_is_shown_as_soon_as_it_can_be_no_marker(formats: Formats) -> None:
    decoder = Decoder(formats)
    prompt = "<|channel|>final<|message|>" if formats == HARMONY else "Well. "
    shown = decoder.push(prompt)
    for piece in ("a", " b", "\n", "<", "b>", "|", "x", " [", "1]"):
        shown += decoder.push(piece)
        held = piece in ("<", " [") and formats not in (NOTHING,)
        pending = "".join(event.raw for event in shown).endswith(piece)
        assert pending or held, (piece, shown)


def test_arguments_come_as_they_are_written() -> None:
    decoder = Decoder(HERMES)
    decoder.push('<tool_call>{"name": "f", "argu')
    assert [type(event) for event in decoder.push('ments": {"a')] == [Mark, CallBegun, Arguments]
    assert [event.raw for event in decoder.push('": "x y')] == ['": "x y']
    assert [type(event) for event in decoder.push('"}}')] == [Arguments, Mark, CallEnded]


def test_numbers_beyond_double_precision_are_the_nearest_that_there_are() -> None:
    text = "<tool_call><function=f><parameter=a>-1e999</parameter><parameter=b>2E400</parameter></function></tool_call>"
    largest = sys.float_info.max
    assert summary(decode(HERMES, [text])) == [("f", {"a": -largest, "b": largest})]
    assert not any(
        isinstance(one, Malformed)
        for one in decode(HERMES, ['<tool_call>{"name": "f", "arguments": {"a": 1e999}}</tool_call>'])
    )


def test_parameters_have_the_type_that_the_function_declares() -> None:
    text = "<tool_call><function=f><parameter=a>1</parameter><parameter=b>1</parameter></function></tool_call>"
    tools = {"f": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}}
    assert summary(decode(HERMES, [text], tools=tools)) == [("f", {"a": "1", "b": 1})]
    for odd in ({"f": None}, {"f": {"properties": []}}, {"f": {"properties": {"a": 3}}}):
        assert summary(decode(HERMES, [text], tools=odd)) == [("f", {"a": 1, "b": 1})]


def test_a_stream_that_begins_inside_of_the_reasoning() -> None:
    for pieces in (["Hm.</think>\n\nYes."], list("Hm.</think>\n\nYes.")):
        assert summary(decode(THINK, pieces, inside=True)) == [("reasoning", "Hm."), ("text", "Yes.")]
    assert THINK.is_inside("<|im_start|>assistant\n<think>\n")
    assert not THINK.is_inside("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert not NOTHING.is_inside("<think>")


def test_a_control_token_is_a_marker_and_its_text_is_not() -> None:
    decoder = Decoder(HERMES, controls=frozenset({"<tool_call>", "</tool_call>"}))
    found = decoder.push("<tool_call>") + decoder.push_marker("<tool_call>")
    found += decoder.push('{"name": "f", "arguments": {"a": "</tool_call>"}}') + decoder.push_marker("</tool_call>")
    assert summary(joined([*found, *decoder.flush()])) == [("text", "<tool_call>"), ("f", {"a": "</tool_call>"})]


def test_a_control_token_ends_a_call_wherever_it_comes() -> None:
    controls = frozenset({"<tool_call>", "</tool_call>"})
    for cut in range(len('{"name": "f", "arguments": {"a": "x"}}')):
        decoder = Decoder(HERMES, controls=controls)
        written = '{"name": "f", "arguments": {"a": "x"}}'[:cut]
        found = decoder.push_marker("<tool_call>") + decoder.push(written) + decoder.push_marker("</tool_call>")
        found += decoder.push("so") + decoder.flush()
        assert summary(joined(found)) == [("malformed", f"<tool_call>{written}</tool_call>"), ("text", "so")]


def test_without_calls_they_are_text() -> None:
    text = '<think>a</think><tool_call>{"name": "f"}</tool_call>'
    assert summary(decode(HERMES, [text], calls=False)) == [("reasoning", "a"), ("text", text[16:])]
    harmony = "<|channel|>commentary to=functions.f<|message|>{}<|call|>"
    assert summary(decode(HARMONY, [harmony], calls=False)) == [("text", "{}")]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("formats", ALL, ids=str)
def test_long_and_deep_answers_take_their_time_and_no_more(formats: Formats) -> None:
    for text in (
        "<" * 50_000,
        "[" * 50_000,
        '<tool_call>{"name": "f", "arguments": ' + '{"a":' * 30_000,
        "a" * 500_000,
    ):
        assert "".join(event.raw for event in decode(formats, [text])) == text
    for opener in {"<tool_call>", "[TOOL_CALLS]", "<|tool_call_start|>", "```tool_code\n"} & formats.markers:
        for nested in (
            "[" * 20_000,
            "-" * 60_000 + "1)",
            "f" + ".a" * 20_000,
            "{1:" * 9_000,
            "(" * 30_000,
            "f(" * 20_000,
        ):
            deep = f"{opener}f(a={nested}"
            assert "".join(event.raw for event in decode(formats, [deep])) == deep


def test_an_answer_ends_once() -> None:
    decoder = Decoder(THINK)
    decoder.push("<th")
    assert decoder.flush() == [Text("<th")]
    assert decoder.flush() == []
    with pytest.raises(UsageError, match="was flushed: its answer has ended; make another"):
        decoder.push("more")


def test_every_format_has_its_cases() -> None:
    assert {formats.calls for _, formats, *_ in CASES} >= {*CALLS, "harmony", "none"}
    assert {formats.reasoning for _, formats, *_ in CASES} >= {*REASONING, "harmony", "none"}
