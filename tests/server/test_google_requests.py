"""What a body of Google's asks for, and what is refused, by the name of the field."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pie_edge.errors import UsageError
from pie_edge.server.generation import Constraint, Conversation, Request, Sampling
from pie_edge.server.google import translate
from pie_edge.server.google.request import Body
from pie_edge.server.google.schema import Schema, json_schema
from pie_edge.server.refusals import parse
from tests.server.told import CARD

WEATHER = {"name": "weather", "description": "Today's", "parameters": {"type": "OBJECT", "properties": {}}}
TOOLS = [{"functionDeclarations": [WEATHER, WEATHER | {"name": "time"}]}]
CALL = {"functionCall": {"name": "weather", "args": {"city": "Ürzig"}}}
RESPONSE = {"functionResponse": {"name": "weather", "response": {"output": "clear"}}}


def asked(*, thinks: str = "never", **fields: Any) -> Request:
    card = replace(CARD, thinks=thinks)  # type: ignore[arg-type]
    return translate.request(parse(Body, json.dumps({"contents": [user("Hello")]} | fields).encode()), card)


def prompt(*contents: dict[str, Any], **fields: Any) -> Conversation:
    found = asked(contents=list(contents), **fields).prompt
    assert isinstance(found, Conversation)
    return found


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "parts": [{"text": part} if isinstance(part, str) else part for part in parts]}


def model(*parts: Any) -> dict[str, Any]:
    return user(*parts) | {"role": "model"}


@pytest.mark.parametrize("style", ["camel", "snake"])
def test_settings_are_those_of_a_request_in_both_styles_of_names(style: str) -> None:
    config = {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 40.0,
        "candidate_count": 2,
        "max_output_tokens": "100",
        "stop_sequences": ["END"],
        "seed": -1,
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
        "response_logprobs": True,
        "logprobs": 3,
        "response_modalities": ["TEXT"],
    }
    if style == "camel":
        config = {re.sub("_(.)", lambda found: found[1].upper(), name): value for name, value in config.items()}
    found = asked(**{"generationConfig" if style == "camel" else "generation_config": config})
    assert found.sampling == Sampling(0.5, 0.9, 40, presence=0.5, frequency=-0.5, seed=2**32 - 1)
    assert (found.choices, found.max_tokens, found.stop, found.logprobs) == (2, 100, ("END",), 3)


def test_contents_are_messages() -> None:
    found = prompt(
        {"parts": [{"text": "a"}]},
        model({"text": "Hm.", "thought": True}, "b", "c"),
        user("d", "e"),
        systemInstruction={"parts": [{"text": "Be brief."}]},
    )
    assert list(found.messages) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "a"},
        {"role": "assistant", "reasoning_content": "Hm.", "content": "bc"},
        {"role": "user", "content": [{"type": "text", "text": "d"}, {"type": "text", "text": "e"}]},
    ]


def test_calls_without_ids_and_their_responses_find_each_other() -> None:
    later = {"functionResponse": {"name": "weather", "response": {"error": "no such city"}}}
    named = {"functionCall": {"name": "time", "id": "abc"}}
    answer = {"functionResponse": {"name": "time", "id": "abc", "response": {"hour": 7}}}
    found = prompt(
        user("Weather?"), model("See:", CALL, CALL, named), user(answer, RESPONSE), user(later, "So?"), tools=TOOLS
    )
    messages = list(found.messages)
    assert messages[1]["content"] == "See:"
    assert [(call["id"], call["function"]["arguments"]) for call in messages[1]["tool_calls"]] == [
        ("call00000", '{"city": "Ürzig"}'),
        ("call00001", '{"city": "Ürzig"}'),
        ("abc", "{}"),
    ]
    assert messages[2:] == [
        {"role": "tool", "tool_call_id": "abc", "name": "time", "content": '{"hour": 7}'},
        {"role": "tool", "tool_call_id": "call00000", "name": "weather", "content": "clear"},
        {"role": "tool", "tool_call_id": "call00001", "name": "weather", "content": "Error: no such city"},
        {"role": "user", "content": "So?"},
    ]


def test_functions_are_tools_with_parameters_in_json_schema() -> None:
    own = {
        "name": "f",
        "parameters": {"type": "OBJECT", "properties": {"n": {"type": "INTEGER", "nullable": True}}, "required": ["n"]},
    }
    given: dict[str, Any] = {"name": "g", "parametersJsonSchema": {"type": "object", "additionalProperties": False}}
    given["responseJsonSchema"] = {"type": "string"}
    found = prompt(
        user("x"), tools=[{"functionDeclarations": [own]}, {"function_declarations": [given, {"name": "h"}]}]
    )
    assert [tool["function"] for tool in found.tools] == [
        {
            "name": "f",
            "parameters": {
                "type": "object",
                "required": ["n"],
                "properties": {"n": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
            },
        },
        {"name": "g", "parameters": {"type": "object", "additionalProperties": False}, "return": {"type": "string"}},
        {"name": "h", "parameters": {"type": "object", "properties": {}}},
    ]


@pytest.mark.parametrize(
    ("config", "choice", "tools"),
    [
        ({}, "auto", ["weather", "time"]),
        ({"mode": "AUTO"}, "auto", ["weather", "time"]),
        ({"mode": "NONE"}, "none", []),
        ({"mode": "VALIDATED"}, "auto", ["weather", "time"]),
        ({"mode": "ANY"}, "required", ["weather", "time"]),
        ({"mode": "ANY", "allowedFunctionNames": ["time", "weather"]}, "required", ["weather", "time"]),
        ({"mode": "ANY", "allowedFunctionNames": ["time"]}, "function:time", ["time"]),
    ],
)
def test_which_functions_are_called(config: dict[str, Any], choice: str, tools: list[str]) -> None:
    found = asked(tools=TOOLS, toolConfig={"functionCallingConfig": config})
    assert isinstance(found.prompt, Conversation)
    assert (found.tool_choice, [tool["function"]["name"] for tool in found.prompt.tools]) == (choice, tools)
    assert all(
        tool["function"].get("strict", False) == (config.get("mode") == "VALIDATED") for tool in found.prompt.tools
    )


@pytest.mark.parametrize(
    ("thinks", "budget", "wanted"),
    [
        ("never", None, None),
        ("never", 0, None),
        ("never", -1, None),
        ("always", None, None),
        ("always", -1, None),
        ("always", 64, None),
        ("switched", None, None),
        ("switched", 0, False),
        ("switched", -1, True),
        ("switched", 64, True),
    ],
)
def test_the_budget_of_thoughts_switches_them(thinks: str, budget: int | None, wanted: bool | None) -> None:
    config = {} if budget is None else {"thinkingConfig": {"thinkingBudget": budget}}
    found = asked(thinks=thinks, generationConfig=config)
    assert isinstance(found.prompt, Conversation)
    assert (found.prompt.thinking, found.thinking_tokens) == (wanted, 64 if budget == 64 else None)


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        ({"responseMimeType": "text/plain"}, None),
        ({"responseMimeType": "application/json"}, Constraint("json")),
        (
            {"responseMimeType": "application/json", "responseSchema": {"type": "ARRAY", "items": {"type": "STRING"}}},
            Constraint("json-schema", '{"type": "array", "items": {"type": "string"}}'),
        ),
        (
            {"responseMimeType": "application/json", "responseJsonSchema": {"type": "object", "title": "ü"}},
            Constraint("json-schema", '{"type": "object", "title": "ü"}'),
        ),
        (
            {"responseMimeType": "text/x.enum", "responseSchema": {"type": "STRING", "enum": ["a+b", "c d"]}},
            Constraint("regex", r"a\+b|c d"),
        ),
    ],
)
def test_the_form_of_the_response_is_a_constraint(config: dict[str, Any], wanted: Constraint | None) -> None:
    assert asked(generationConfig=config).constraint == wanted


@given(st.lists(st.text(min_size=1), min_size=1, max_size=3))
def test_an_enum_matches_its_own_values_alone(values: list[str]) -> None:
    found = asked(
        generationConfig={"responseMimeType": "text/x.enum", "responseSchema": {"type": "STRING", "enum": values}}
    ).constraint
    assert found is not None
    assert all(re.fullmatch(found.text, value) for value in values)
    assert not any(re.fullmatch(found.text, value + "x") for value in values if value + "x" not in values)


def test_schemas_of_openapi_are_json_schemas() -> None:
    schema = {
        "type": "OBJECT",
        "propertyOrdering": ["b", "a"],
        "properties": {
            "a": {"type": "INTEGER", "format": "int32", "minimum": 0, "example": 3},
            "b": {"type": "STRING", "format": "date-time", "maxLength": "20"},
            "c": {"anyOf": [{"type": "NUMBER", "format": "double"}, {"type": "boolean"}], "nullable": True},
            "d": {"type": "STRING", "format": "enum", "enum": ["x", "y"], "default": None},
        },
        "required": ["a"],
        "minProperties": 1,
    }
    found = json_schema(Schema.model_validate(schema))
    assert found == {
        "type": "object",
        "required": ["a"],
        "minProperties": 1,
        "properties": {
            "b": {"type": "string", "format": "date-time", "maxLength": 20},
            "a": {"type": "integer", "format": "int32", "minimum": 0, "examples": [3]},
            "c": {
                "anyOf": [{"anyOf": [{"type": "number", "format": "double"}, {"type": "boolean"}]}, {"type": "null"}]
            },
            "d": {"type": "string", "enum": ["x", "y"], "default": None},
        },
    }
    assert list(found["properties"]) == ["b", "a", "c", "d"], "the order was asked for"


ENUM = {"responseMimeType": "text/x.enum"}


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"contents": []}, "contents"),
        ({"contents": "Hello"}, "contents"),
        ({"contents": [{"role": "user", "parts": []}]}, "contents[0].parts"),
        ({"contents": [{"role": "assistant", "parts": [{"text": "x"}]}]}, "contents[0].role"),
        ({"contents": [user({"inlineData": {"mimeType": "image/png", "data": ""}})]}, "inlineData"),
        ({"contents": [user({"file_data": {}})]}, "file_data"),
        ({"contents": [user({})]}, "contents[0]"),
        ({"contents": [user({"text": "a", **CALL})]}, "contents[0]"),
        ({"contents": [user("a"), model("b")]}, "functionResponse"),
        ({"contents": [user(CALL)]}, "only the model"),
        ({"contents": [user("a"), model(RESPONSE), user("b")]}, "functionResponse"),
        ({"contents": [user("a"), model(CALL), user("b")]}, "weather"),
        ({"contents": [user(RESPONSE)]}, "weather"),
        ({"systemInstruction": {"parts": [CALL]}}, "systemInstruction"),
        ({"cachedContent": "cachedContents/x"}, "cachedContent"),
        ({"generationConfig": {"temperature": 2.5}}, "generationConfig.temperature"),
        ({"generationConfig": {"temperature": "warm"}}, "generationConfig.temperature"),
        ({"generationConfig": {"topK": 1.5}}, "generationConfig.topK"),
        ({"generationConfig": {"candidateCount": 9}}, "generationConfig.candidateCount"),
        ({"generationConfig": {"logprobs": 3}}, "generationConfig.logprobs"),
        ({"generationConfig": {"speechConfig": {}}}, "generationConfig.speechConfig"),
        ({"generationConfig": {"responseModalities": ["IMAGE"]}}, "generationConfig.responseModalities"),
        ({"generationConfig": {"thinkingConfig": {"thinkingLevel": "HIGH"}}}, "thinkingLevel"),
        ({"generationConfig": {"thinkingConfig": {"thinkingBudget": 9}}}, "thinkingBudget"),
        ({"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}, "thinks": "always"}, "thinkingBudget"),
        ({"generationConfig": {"responseSchema": {"type": "STRING"}}}, "responseMimeType"),
        ({"generationConfig": {"responseMimeType": "text/x.enum"}}, "text/x.enum"),
        ({"generationConfig": ENUM | {"responseSchema": {"type": "INTEGER", "enum": ["1"]}}}, "its type is 'integer'"),
        (
            {"generationConfig": ENUM | {"responseSchema": {"enum": ["a"], "maxLength": 1}}},
            "'maxLength' changes nothing",
        ),
        ({"generationConfig": {"responseMimeType": "text/html"}}, "responseMimeType"),
        ({"generationConfig": {"responseMimeType": "application/json", "responseSchema": {"tpye": "STRING"}}}, "tpye"),
        ({"tools": [{"googleSearch": {}}]}, "googleSearch"),
        (
            {
                "tools": TOOLS,
                "toolConfig": {"functionCallingConfig": {"mode": "VALIDATED"}},
                "generationConfig": {"responseMimeType": "application/json"},
            },
            "functionCallingConfig.mode",
        ),
        ({"tools": [{"functionDeclarations": [{"name": 'a"b'}]}]}, "functionDeclarations[0].name"),
        ({"tools": [{"functionDeclarations": [WEATHER, WEATHER]}]}, "weather"),
        ({"tools": [{"functionDeclarations": [WEATHER | {"behavior": "NON_BLOCKING"}]}]}, "behavior"),
        ({"tools": [{"functionDeclarations": [WEATHER | {"parametersJsonSchema": {}}]}]}, "parametersJsonSchema"),
        ({"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}}, "functionCallingConfig"),
        (
            {"tools": TOOLS, "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["x"]}}},
            "allowedFunctionNames",
        ),
        (
            {"tools": TOOLS, "toolConfig": {"functionCallingConfig": {"allowedFunctionNames": ["time"]}}},
            "allowedFunctionNames",
        ),
    ],
)
def test_what_cant_be_done_is_refused_by_name(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError) as refused:
        asked(**fields)
    assert named in str(refused.value)


def test_an_order_names_properties_that_are_there() -> None:
    schema = {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}, "propertyOrdering": ["a", "z"]}
    config = {"responseMimeType": "application/json", "responseSchema": schema}
    with pytest.raises(UsageError, match="responseSchema: propertyOrdering names 'z', and the properties are: a"):
        asked(generationConfig=config)
