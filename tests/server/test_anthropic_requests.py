"""What a body of Anthropic's asks for, and what is refused, by the name of the field."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from pie_edge.errors import UsageError
from pie_edge.server.anthropic import translate
from pie_edge.server.anthropic.request import TAGS, Body
from pie_edge.server.anthropic.signature import sign
from pie_edge.server.generation import Constraint, Conversation, Request
from pie_edge.server.refusals import parse
from tests.server.told import CARD

WEATHER = {"name": "weather", "description": "Today's", "input_schema": {"type": "object", "properties": {}}}
CALL = {"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "Ürzig"}}
RESULT = {"type": "tool_result", "tool_use_id": "call_1", "content": "clear"}


def asked(*, thinks: str = "never", **fields: Any) -> Request:
    body = {"model": "tiny", "max_tokens": 100, "messages": [{"role": "user", "content": "Hello"}]} | fields
    card = replace(CARD, thinks=thinks)  # type: ignore[arg-type]
    return translate.request(parse(Body, json.dumps(body).encode(), TAGS), card)


def prompt(*messages: dict[str, Any], **fields: Any) -> Conversation:
    found = asked(messages=list(messages), **fields).prompt
    assert isinstance(found, Conversation)
    return found


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def test_settings_are_those_of_a_request() -> None:
    found = asked(temperature=0.5, top_p=0.9, top_k=40, stop_sequences=["END", "\n\n"])
    assert (found.max_tokens, found.stop) == (100, ("END", "\n\n"))
    assert (found.sampling.temperature, found.sampling.top_p, found.sampling.top_k) == (0.5, 0.9, 40)


@pytest.mark.parametrize(
    "system",
    ["Be brief.", [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}]],
)
def test_the_system_prompt_is_the_first_message(system: Any) -> None:
    assert list(prompt(user("Hello"), system=system).messages) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
    ]


def test_messages_of_one_side_in_a_row_are_one_turn() -> None:
    found = prompt(user("a"), user([{"type": "text", "text": "b"}]), assistant("c"), user("d"))
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert list(found.messages) == [user(parts), assistant("c"), user("d")]


def test_calls_and_results_are_as_chat_templates_read_them() -> None:
    error = RESULT | {"tool_use_id": "call_2", "is_error": True, "content": [{"type": "text", "text": "no such city"}]}
    calls = [{"type": "text", "text": "Let me see."}, CALL, CALL | {"id": "call_2", "input": {}}]
    found = prompt(
        user("Weather?"), assistant(calls), user([RESULT, error, {"type": "text", "text": "So?"}]), tools=[WEATHER]
    )
    function = {"name": "weather", "arguments": '{"city": "Ürzig"}'}
    assert list(found.messages)[1:] == [
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": function},
                {"id": "call_2", "type": "function", "function": {"name": "weather", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "name": "weather", "content": "clear"},
        {"role": "tool", "tool_call_id": "call_2", "name": "weather", "content": "Error: no such city"},
        {"role": "user", "content": "So?"},
    ]
    assert list(found.tools) == [
        {
            "type": "function",
            "function": {"name": "weather", "description": "Today's", "parameters": WEATHER["input_schema"]},
        }
    ]


def test_an_assistants_text_at_the_end_is_continued() -> None:
    found = prompt(user("Name a colour."), assistant("The colour is"))
    assert (list(found.messages), found.prefill) == ([user("Name a colour.")], "The colour is")


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [
        ({"type": "auto"}, ("auto", True)),
        ({"type": "any"}, ("required", True)),
        ({"type": "none"}, ("none", True)),
        ({"type": "tool", "name": "weather"}, ("function:weather", True)),
        ({"type": "any", "disable_parallel_tool_use": True}, ("required", False)),
        ({"type": "auto", "disable_parallel_tool_use": True}, ("auto", False)),
    ],
)
def test_the_choice_of_tools(choice: dict[str, Any], wanted: tuple[str, bool]) -> None:
    found = asked(tools=[WEATHER], tool_choice=choice)
    assert (found.tool_choice, found.parallel_calls) == wanted
    assert isinstance(found.prompt, Conversation)
    assert bool(found.prompt.tools) == (choice["type"] != "none"), "it is told of those that it may call"


@pytest.mark.parametrize(
    ("thinks", "thinking", "wanted"),
    [
        ("never", None, None),
        ("never", {"type": "disabled"}, None),
        ("never", {"type": "adaptive"}, None),
        ("always", None, None),
        ("always", {"type": "adaptive"}, None),
        ("always", {"type": "enabled", "budget_tokens": 50}, None),
        ("switched", None, False),
        ("switched", {"type": "disabled"}, False),
        ("switched", {"type": "adaptive"}, True),
        ("switched", {"type": "enabled", "budget_tokens": 50}, True),
    ],
)
def test_thinking_is_switched_where_the_model_has_a_switch(
    thinks: str, thinking: dict[str, Any] | None, wanted: bool | None
) -> None:
    found = asked(thinks=thinks, thinking=thinking)
    assert isinstance(found.prompt, Conversation)
    assert found.prompt.thinking is wanted
    assert found.thinking_tokens == (50 if thinking and thinking["type"] == "enabled" else None)


def test_earlier_thinking_goes_back_to_the_model_unchanged() -> None:
    block = {"type": "thinking", "thinking": "Rain?", "signature": sign("Rain?")}
    found = prompt(user("a"), assistant([block, {"type": "text", "text": "b"}]), user("c"))
    assert list(found.messages)[1] == {"role": "assistant", "reasoning_content": "Rain?", "content": "b"}


@pytest.mark.parametrize("fields", [{"output_config": {"format": ...}}, {"output_format": ...}])
def test_structured_output_is_a_constraint(fields: dict[str, Any]) -> None:
    format_ = {"type": "json_schema", "schema": {"type": "object", "properties": {"ü": {"type": "integer"}}}}
    found = asked(
        **({"output_config": {"format": format_}} if "output_config" in fields else {"output_format": format_})
    )
    assert found.constraint == Constraint("json-schema", '{"type": "object", "properties": {"ü": {"type": "integer"}}}')


def test_what_changes_no_answer_is_taken() -> None:
    mark = {"type": "ephemeral"}
    plain, marked = (
        asked(tools=[WEATHER]),
        asked(
            tools=[WEATHER | {"cache_control": mark, "eager_input_streaming": True, "type": "custom"}],
            messages=[user([{"type": "text", "text": "Hello", "cache_control": mark, "citations": None}])],
            metadata={"user_id": "someone"},
            service_tier="auto",
            cache_control=mark,
        ),
    )
    assert plain == marked


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"max_tokens": None}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [user(5)]}, "messages[0].content"),
        ({"messages": [user([{"type": "text", "text": ""}])]}, "messages[0].content[0].text: "),
        (
            {"messages": [user([{"type": "thinking", "thinking": 1, "signature": "s"}])]},
            "messages[0].content[0].thinking: ",
        ),
        ({"thinking": {"type": "enabled", "budget_tokens": 0}}, "thinking.budget_tokens: "),
        ({"messages": [user([{"type": "image", "source": {}}])]}, "'image'"),
        ({"messages": [user([{"type": "document"}])]}, "'document'"),
        ({"messages": [assistant([{"type": "redacted_thinking", "data": ""}])]}, "'redacted_thinking'"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
        ({"temperature": 1.5}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_k": -1}, "top_k"),
        ({"stop_sequences": [""]}, "stop_sequences[0]"),
        ({"service_tier": "priority"}, "service_tier"),
        ({"container": "c"}, "container"),
        ({"mcp_servers": []}, "mcp_servers"),
        ({"output_config": {"effort": "low"}}, "output_config.effort"),
        ({"thinking": {"type": "enabled", "budget_tokens": 50}}, "thinking"),
        ({"thinking": {"type": "enabled", "budget_tokens": 100}, "thinks": "switched"}, "budget_tokens"),
        ({"thinking": {"type": "disabled"}, "thinks": "always"}, "thinking"),
        ({"thinking": {"type": "adaptive", "display": "omitted"}}, "thinking.display"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "web_search_20250305"),
        ({"tools": [WEATHER, WEATHER]}, "weather"),
        ({"tools": [WEATHER | {"name": 'we"ather'}]}, "tools[0].name"),
        ({"tools": [WEATHER | {"defer_loading": True}]}, "tools[0].defer_loading"),
        ({"tools": [WEATHER | {"input_examples": []}]}, "tools[0].input_examples"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        (
            {"tools": [WEATHER | {"strict": True}], "output_format": {"type": "json_schema", "schema": {}}},
            "not to both",
        ),
        ({"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "other"}}, "'other'"),
        (
            {
                "tools": [WEATHER],
                "tool_choice": {"type": "any"},
                "thinking": {"type": "enabled", "budget_tokens": 9},
                "thinks": "switched",
            },
            "tool_choice",
        ),
        ({"messages": [user("a"), assistant("b ")]}, "white space"),
        ({"messages": [user("a"), assistant([CALL])]}, "tool_use"),
        ({"messages": [user("a"), assistant([CALL]), user("b")]}, "call_1"),
        ({"messages": [user([RESULT])]}, "call_1"),
        ({"messages": [user("a"), assistant([CALL]), user([{"type": "text", "text": "b"}, RESULT])]}, "tool_result"),
        ({"messages": [user("a"), assistant([CALL, {"type": "text", "text": "b"}]), user([RESULT])]}, "tool_use"),
        ({"messages": [user([CALL]), assistant("b"), user("c")]}, "user"),
        (
            {
                "messages": [
                    user("a"),
                    assistant([{"type": "thinking", "thinking": "x", "signature": sign("y")}]),
                    user("c"),
                ]
            },
            "signature",
        ),
        ({"messages": [user("a"), assistant("{")], "output_format": {"type": "json_schema", "schema": {}}}, "format"),
    ],
)
def test_what_cant_be_done_is_refused_by_name(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError) as refused:
        asked(**fields)
    assert named in str(refused.value)
