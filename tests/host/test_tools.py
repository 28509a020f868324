"""Tools, reasoning and whole conversations from inside of an inferlet."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from pie_edge import errors as ours
from tests.host.hosting import Ended, run

HEAD = """
from dataclasses import asdict
from inferlet import Context, chat, errors, model, reasoning, tools

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"type": "string"}}}}}]
TEXT = 'I look.<tool_call>{"name": "f", "arguments": {"é": 1}}</tool_call> Done.<tool_call>{"name": 3}</tool_call>'

def told(events):
    return [[type(event).__name__, *asdict(event).values()] for event in events]
"""


def one(expression: str, **options: Any) -> Any:
    ended = run(f"{HEAD}\nasync def main(input): return {expression}", **options)
    assert ended.error is None, ended.traceback or ended.error
    return ended.result


def failing(expression: str, **options: Any) -> Ended:
    ended = run(f"{HEAD}\nasync def main(input): return {expression}", **options)
    assert isinstance(ended.error, ours.InferletFailed), ended
    return ended


def test_pieces_and_conversations_cross_as_they_are() -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"type": "string"}}}}}]
    made = one(
        "[model.decode(ids) for ids in (tools.equip(TOOLS), tools.equip(TOOLS, 'é', thinking=False), chat.cue(thinking=True),"
        " chat.system('s', thinking=True), chat.preamble(thinking=False),"
        " chat.conversation([{'role': 'user', 'content': 'é'}], tools=TOOLS, thinking=True, cue=False),"
        " tools.answer((tools.Call('f', {'a': 1}, 'x'), 'é'), ('g', {'b': [1]})))]"
    )
    answers = [
        {"name": "f", "arguments": {"a": 1}, "id": "x", "content": "é"},
        {"name": "g", "arguments": {}, "content": '{"b": [1]}'},
    ]
    assert made == [
        f"<f>{json.dumps([tools, None])}\n",
        f"<t0><f>{json.dumps([tools, 'é'])}\n",
        "<a><t1>",
        "<t1><s>s\n",
        "<t0>",
        json.dumps([[{"role": "user", "content": "é"}], tools, True, False]),
        f"\n<r>{json.dumps(answers)}\n",
    ]


CALL = [
    ["Text", "I look."],
    ["CallStart", 0, "f", None],
    ["Arguments", 0, '{"é": 1}'],
    ["Call", "f", {"é": 1}, None, 0],
    ["Text", "Done."],
    ["Malformed", '<tool_call>{"name": 3}</tool_call>', None],
]


def test_an_answer_is_taken_apart_in_the_model_s_format() -> None:
    assert one("[tools.format(), reasoning.format()]") == ["hermes", "think"]
    program = """
async def main(input):
    whole, piecewise = tools.Decoder(TOOLS), tools.Decoder()
    found = told(whole.push(model.encode(TEXT)) + whole.flush())
    events = [event for token in model.encode(TEXT) for event in piecewise.push(token)] + piecewise.flush()
    text = "".join(event.text for event in events if isinstance(event, tools.Text))
    return [found, text, told(event for event in events if isinstance(event, tools.Call | tools.Malformed))]
"""
    ended = run(HEAD + program)
    assert ended.result == [CALL, "I look.Done.", [CALL[3], CALL[5]]], ended


def test_reasoning_begins_where_the_cue_left_it() -> None:
    program = """
async def main(input):
    found = []
    for decoder in (reasoning.Decoder(thinking=True), reasoning.Decoder(opened=False), tools.Decoder(thinking=True)):
        found.append(told(decoder.push(model.encode("a</think> <tool_call>{")) + decoder.flush()))
    return [found, reasoning.opens(thinking=True), reasoning.opens()]
"""
    ended = run(HEAD + program)
    thought = ["Reasoning", "a"]
    assert ended.result == [
        [
            [thought, ["Text", "<tool_call>{"]],
            [["Text", "a</think> <tool_call>{"]],
            [thought, ["Malformed", "<tool_call>{", None]],
        ],
        True,
        False,
    ], ended


def test_long_answers_go_in_parts() -> None:
    assert one("len([e.text for e in [reasoning.Decoder()] for e in e.push(model.encode('ab ' * 5000))])") == 4


def test_a_context_is_equipped_called_and_answered() -> None:
    program = """
async def main(input):
    context = Context(thinking=False)
    context.equip(TOOLS, "s")
    context.fill_user("q")
    answer = await context.generate_until(max_tokens=4)
    made = len(context.tokens)
    context.fill_answers(("f", "1"))
    context.cue()
    return [model.decode(context.tokens[:made - 4]), model.decode(context.tokens[made:]), context.fork().thinking]
"""
    ended = run(HEAD + program)
    before, after, thinking = ended.result
    assert before.startswith("<t0><f>") and before.endswith('"s"]\n<u>q\n<a><t0>')
    assert after == '\n<r>[{"name": "f", "arguments": {}, "content": "1"}]\n<a><t0>'
    assert thinking is False


def test_an_answer_is_to_what_the_model_called() -> None:
    program = """
from types import SimpleNamespace

async def main(input):
    context = Context()
    context.fill_user("q")
    context.cue()
    made = model.encode(TEXT)
    context.fill(made)
    context._last = SimpleNamespace(tokens=made)  # as if it had been generated
    try:
        context.fill_answers(("f", "1"), ("g", "2"))
    except errors.UsageError as error:
        told = str(error)
    before = len(context.tokens)
    context.fill_answers(("f", "1"))
    return [told, len(context.tokens) > before, tools.called(made)]
"""
    ended = run(HEAD + program)
    told = "there is an answer of 'g', which the model's turn doesn't call; it calls f"
    assert ended.result == [told, True, ["f"]], ended


REFUSED = {
    "no list of tools": ("tools.equip('f')", "TypeError", "tools.equip takes a list, and 'f' is of type str"),
    "one tool": ("tools.equip(TOOLS[0])", "TypeError", "takes a list, and .* of type dict"),
    "no tool": ("tools.equip(['f'])", "TemplateError", "tool 0 is 'f'; a tool is an object"),
    "no schema": (
        "tools.Decoder([{'name': 'f', 'parameters': 3}])",
        "TemplateError",
        "tool 0, 'f', has the parameters 3",
    ),
    "no JSON": ("tools.equip([{'name': object()}])", "TypeError", "tools.equip takes what has a JSON form: "),
    "no pair": ("tools.answer('sunny')", "UsageError", "takes pairs of a Call, or a tool's name"),
    "a call that is none": ("tools.answer(({'name': 'f'}, 'x'))", "UsageError", "takes pairs of a Call"),
    "no answers": ("tools.answer()", "UsageError", "gives no answers; give one for each call of the turn"),
    "an answer that is no JSON": ("tools.answer(('f', {1j}))", "TypeError", "tools.answer takes what has a JSON form"),
    "no messages": ("chat.conversation('hello')", "TypeError", "takes a list"),
    "thinking": ("chat.cue(thinking='yes')", "TypeError", "takes thinking as True, False or None"),
    "a token too far": ("tools.Decoder().push(5000)", "InvalidHandle", "token 5000 is outside"),
    "no token": ("tools.Decoder().push('x')", "InvalidHandle", "takes token ids"),
    "after its end": (
        "[decoder.push(100) for decoder in [tools.Decoder()] if decoder.flush() == []]",
        "UsageError",
        "was flushed",
    ),
    "an answer to nothing": ("Context().fill_answers(('f', 'x'))", "UsageError", "nothing has been called"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_tool_or_answer_is_refused_where_it_was_given(case: str) -> None:
    expression, kind, message = REFUSED[case]
    ended = failing(expression)
    assert kind in ended.traceback and "main.py" in ended.traceback
    assert re.search(message, str(ended.error)), ended.error


@pytest.mark.parametrize("call", ["tools.equip(TOOLS)", "tools.answer(('f', 'x'))", "chat.conversation([])"])
def test_a_model_without_a_template_says_so(call: str) -> None:
    assert "has no chat template" in str(failing(call, template=False).error)


def test_a_model_without_a_template_has_no_formats_and_its_text_stays() -> None:
    assert one("[tools.format(), reasoning.format(), reasoning.opens()]", template=False) == ["none", "none", False]
    assert one("told(tools.Decoder().push(model.encode('<think>x')))", template=False) == [["Text", "<think>x"]]
