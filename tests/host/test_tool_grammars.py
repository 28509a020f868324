"""Answers that a random model makes by a grammar of tools: each format's own decoder reads valid calls in all of them."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from pie_edge.errors import GrammarError, PieError, Unsupported, UsageError
from pie_edge.grammar import Grammar
from pie_edge.host.constraints import Constraints
from pie_edge.host.tool_grammars import Wanted
from pie_edge.tokenizer import Tokenizer
from pie_edge.tokenizer.formats import Formats, TokenDecoder, joined
from pie_edge.tokenizer.formats.events import CallEnded, Event, Malformed, Reasoning, Text
from tests.support.grammars import bits, validator
from tests.support.vocabularies import byte_level

MARKERS = {
    "hermes": ("<tool_call>", "</tool_call>"),
    "llama": ("<|python_tag|>",),
    "mistral": ("[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"),
    "harmony": ("<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>"),
    "pythonic": ("<|tool_call_start|>", "<|tool_call_end|>"),
    "json-list": ("<|tool_call|>", "<|/tool_call|>"),
    "gemma": (),
}
THINKING = ("<think>", "</think>")
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "strict": True,
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "maxLength": 8},
                    "days": {"$ref": "#/$defs/days"},
                    "unit": {"enum": ["°C", "K"]},
                },
                "required": ["city", "unit"],
                "additionalProperties": False,
                "$defs": {"days": {"type": "integer", "minimum": 1, "maximum": 14, "format": "int64"}},
            },
        },
    },
    {"type": "function", "function": {"name": "näme_2", "parameters": {"type": "object", "not": {"required": ["x"]}}}},
    {"type": "function", "function": {"name": "now"}},
]
PARAMETERS = {tool["function"]["name"]: tool["function"].get("parameters", {}) for tool in TOOLS}  # type: ignore[attr-defined]


def tokenizer(*control: str) -> Tokenizer:
    return Tokenizer.from_gguf(
        byte_level(
            ["<eos>", *control], [], [("{", '"'), (":", "Ġ"), (",", "Ġ"), ('"', "}")], eos_token_id=0, pre="gpt-2"
        )
    )


def grammar(of: Tokenizer, formats: Formats, wanted: Wanted, tools: Any = TOOLS) -> Grammar:
    return Constraints(of, of.size)._of_tools(formats, tools, wanted)


def answer(of: Tokenizer, made: Grammar, seed: int) -> list[int] | None:
    """Tokens of an answer; None if it is too long."""
    draws, matcher, tokens = random.Random(seed), made.matcher(), list[int]()
    while not matcher.finished and len(tokens) < 700:
        forced = matcher.forced() if draws.random() < 0.7 else []
        if not forced:
            allowed = bits(matcher.mask())
            ends = {token: 6.0 if of.token_bytes(token)[:1] in (b'"', b"}", b"]", b"<") else 1.0 for token in allowed}
            forced = draws.choices(allowed, [20.0 if token < 8 else ends[token] for token in allowed])
        if forced[-1] in of.stop_tokens:
            return tokens
        matcher.accept(forced)
        tokens += forced
    return tokens if matcher.finished else None


def events(of: Tokenizer, formats: Formats, tokens: list[int], inside: bool) -> list[Event]:
    decoder = TokenDecoder(of, formats, inside=inside, continued=False, tools=TOOLS)
    return joined([*(event for token in tokens for event in decoder.push(token)), *decoder.flush()])


def read(of: Tokenizer, formats: Formats, wanted: Wanted, seeds: int = 16) -> list[list[Event]]:
    """The answers that ended, each valid."""
    made, found = grammar(of, formats, wanted), []
    for seed in range(seeds):
        tokens = answer(of, made, seed)
        if tokens is None:
            continue
        all_events = events(of, formats, tokens, wanted.inside)
        assert not [event for event in all_events if isinstance(event, Malformed)], of.decode(tokens, special=True)
        for call in all_events:
            if isinstance(call, CallEnded):
                arguments = json.loads(call.arguments) if isinstance(call.arguments, str) else call.arguments
                schema = PARAMETERS[call.name]
                validator({} if "not" in schema else schema).validate(arguments)
                assert isinstance(arguments, dict)
        found.append(all_events)
    return found


def calls(answered: list[Event]) -> list[str]:
    return [event.name for event in answered if isinstance(event, CallEnded)]


def texts(answered: list[Event]) -> str:
    return "".join(event.raw for event in answered if isinstance(event, Text))


@pytest.mark.parametrize("spelled", [False, True], ids=["control tokens", "markers as text"])
@pytest.mark.parametrize("name", MARKERS)
def test_a_required_call_is_made_and_nothing_else(name: str, spelled: bool) -> None:
    of, formats = tokenizer(*(() if spelled else MARKERS[name])), Formats(name)
    found = read(of, formats, Wanted(None, text=False, several=True, inside=False))
    assert len(found) >= 6
    assert all(calls(one) and not texts(one).strip() for one in found)
    assert len({call for one in found for call in calls(one)}) > 1
    assert name == "harmony" or any(len(calls(one)) > 1 for one in found)


@pytest.mark.parametrize("name", MARKERS)
def test_one_call_of_the_named_tool(name: str) -> None:
    found = read(
        tokenizer(*MARKERS[name]), Formats(name), Wanted("weather", text=False, several=False, inside=False), 15
    )
    assert len(found) >= 8
    assert all(calls(one) == ["weather"] for one in found)


@pytest.mark.parametrize("spelled", [False, True], ids=["control tokens", "markers as text"])
@pytest.mark.parametrize("name", MARKERS)
def test_an_answer_may_be_text_and_what_calls_there_are_are_valid(name: str, spelled: bool) -> None:
    of = tokenizer(*(() if spelled else MARKERS[name]))
    formats, wanted = Formats(name), Wanted(None, text=True, several=True, inside=False)
    assert any(texts(one) and not calls(one) for one in read(of, formats, wanted))
    call = answer(of, grammar(of, formats, Wanted("now", text=False, several=False, inside=False)), 1)
    assert call is not None
    before = [] if name in ("llama", "gemma", "harmony") else of.encode("Let me see: ")
    matcher = grammar(of, formats, wanted).matcher()
    matcher.accept([*before, *call])
    assert matcher.accepting
    assert calls(events(of, formats, [*before, *call], False)) == ["now"]


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("control", [(), THINKING])
def test_a_model_that_thinks_may_do_that_first(inside: bool, control: tuple[str, ...]) -> None:
    of, formats = tokenizer("<tool_call>", *control), Formats("hermes", "think")
    wanted = Wanted("now", text=False, several=False, inside=inside)
    made = grammar(of, formats, wanted)
    call = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    thought = f"{'' if inside else '<think>'}Hm <tool_call\n{{}}.</think>\n\n"
    tokens = of.encode(thought + call, special=True)
    matcher = made.matcher()
    matcher.accept(tokens)
    assert matcher.finished
    found = events(of, formats, tokens, inside)
    assert [event.text for event in found if isinstance(event, Reasoning)] == ["Hm <tool_call\n{}."]
    assert calls(found) == ["now"]
    if not inside:
        made.matcher().accept(of.encode(call, special=True))


@pytest.mark.parametrize(
    ("formats", "tools", "name", "error", "why"),
    [
        (Formats(), TOOLS, None, Unsupported, "no format in which it calls tools"),
        (Formats("hermes"), TOOLS, "rain", UsageError, "the tools are weather, näme_2, now"),
        (Formats("hermes"), [], None, UsageError, "the tools are none"),
        (
            Formats("hermes"),
            [{"function": {"name": "f", "strict": True, "parameters": {"properties": {"a": {"not": {}}}}}}],
            None,
            GrammarError,
            "the tool 'f': .*'not' at #/properties/a/not",
        ),
    ],
)
def test_what_cannot_be_called_is_refused(
    formats: Formats, tools: Any, name: str | None, error: type[PieError], why: str
) -> None:
    with pytest.raises(error, match=why):
        grammar(tokenizer("<tool_call>"), formats, Wanted(name, text=False, several=True, inside=False), tools)


def test_names_are_written_as_they_are() -> None:
    name = 'a"b\\c/d<|x|>é'
    of = tokenizer("<tool_call>", "<|x|>")
    made = grammar(of, Formats("hermes"), Wanted(None, False, False, False), [{"function": {"name": name}}])
    found = events(of, Formats("hermes"), answer(of, made, 1) or [], False)
    assert calls(found) == [name]
