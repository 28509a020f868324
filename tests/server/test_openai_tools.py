"""Tools, reasoning and answers in a form, asked by OpenAI's own SDK."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import openai
import pytest

from tests.server.openai_serving import HELLO, MODEL, WEATHER, World, asking, scripted, world
from tests.server.test_openai_chat import chunks, ending, streamed, whole

__all__ = ["scripted", "world"]

SCHEMA = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["a", "bé"]},
        "count": {"type": "integer", "minimum": 0, "maximum": 99},
        "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
    },
    "required": ["kind", "count", "tags"],
    "additionalProperties": False,
}
SHORT = {"1": 12}
"""A bias for the quotation mark, so that random strings end."""
FORMAT = {"type": "json_schema", "json_schema": {"name": "thing", "schema": SCHEMA, "strict": True}}


def test_a_call_comes_whole_and_in_pieces_of_its_arguments(world: World) -> None:
    answer = whole(world, "[call]", tools=[WEATHER]).choices[0]
    assert (answer.finish_reason, answer.message.content) == ("tool_calls", None)
    (call,) = answer.message.tool_calls or []
    assert call.type == "function" and call.function.name == "weather"
    assert json.loads(call.function.arguments) == {"city": "Paris"}
    found = chunks(world, "[call]", tools=[WEATHER])
    deltas = [delta for one in found for delta in one.choices[0].delta.tool_calls or []]
    assert deltas[0].id and deltas[0].type == "function" and deltas[0].function and deltas[0].function.name == "weather"
    assert all(delta.id is None and delta.index == 0 for delta in deltas[1:])
    pieces = [delta.function.arguments or "" for delta in deltas if delta.function is not None]
    assert "".join(pieces) == call.function.arguments and len([piece for piece in pieces if piece]) > 1
    assert ending(found) == "tool_calls"


def test_several_calls_of_one_answer_or_the_first_alone(world: World) -> None:
    def cities(**options: Any) -> tuple[str | None, list[str]]:
        message = whole(world, "[two]", tools=[WEATHER], **options).choices[0].message
        calls = message.tool_calls or []
        assert len({call.id for call in calls}) == len(calls)
        return message.content, [
            json.loads(call.function.arguments)["city"] for call in calls if call.type == "function"
        ]

    assert cities() == ("Two.", ["Oslo", "Rome"])
    assert cities(parallel_tool_calls=False) == ("Two.", ["Oslo"])
    found = chunks(world, "[two]", tools=[WEATHER])
    indices = {delta.index for one in found for delta in one.choices[0].delta.tool_calls or []}
    assert (streamed(found), indices) == ("Two.", {0, 1})


def test_what_tools_gave_goes_back_into_the_conversation(world: World) -> None:
    (call,) = whole(world, "[call]", tools=[WEATHER]).choices[0].message.tool_calls or []
    messages: list[Any] = [
        *asking("[call]"),
        {"role": "assistant", "content": None, "tool_calls": [call.model_dump()]},
        {"role": "tool", "tool_call_id": call.id, "content": "sunny [hello]"},
    ]
    answer = world.client.chat.completions.create(model=MODEL, messages=messages, tools=[WEATHER])  # type: ignore[list-item]
    assert (answer.choices[0].message.content or "").startswith("Hello world!")
    messages[2]["tool_call_id"] = "other"
    with pytest.raises(openai.BadRequestError, match="the tool call 'other' is answered, and there is no such call"):
        world.client.chat.completions.create(model=MODEL, messages=messages, tools=[WEATHER])  # type: ignore[list-item]


def test_with_tool_choice_none_the_model_isn_t_told_of_tools_and_calls_nothing(world: World) -> None:
    without, told = whole(world, "[call]").usage, whole(world, "[call]", tools=[WEATHER], tool_choice="none")
    assert without is not None and told.usage is not None
    assert told.usage.prompt_tokens == without.prompt_tokens
    assert told.choices[0].message.tool_calls is None and told.choices[0].finish_reason == "stop"


NAMES = {"type": "function", "function": {"name": "names", "parameters": SCHEMA}}


def called(world: World, text: str, **options: Any) -> list[tuple[str, Any]]:
    answer = whole(world, text, tools=[WEATHER, NAMES], max_tokens=300, **options).choices[0]
    assert answer.finish_reason == "tool_calls", answer
    calls = answer.message.tool_calls or []
    found = chunks(world, text, tools=[WEATHER, NAMES], max_tokens=300, **options)
    pieces = [delta for one in found for delta in one.choices[0].delta.tool_calls or []]
    told = "".join(delta.function.arguments or "" for delta in pieces if delta.function is not None)
    assert told == "".join(call.function.arguments for call in calls if call.type == "function")
    return [(call.function.name, json.loads(call.function.arguments)) for call in calls if call.type == "function"]


@pytest.mark.parametrize("text", ["[hello]", "[think]", "say [] what"])
def test_a_call_that_is_required_is_made_with_arguments_that_validate(world: World, text: str) -> None:
    named = {"type": "function", "function": {"name": "names"}}
    for seed in range(3):
        for name, arguments in called(world, text, tool_choice="required", seed=seed, logit_bias=SHORT):
            jsonschema.validate(arguments, {"weather": WEATHER, "names": NAMES}[name]["function"]["parameters"])  # type: ignore[index]
        (call,) = called(world, text, tool_choice=named, seed=seed, parallel_tool_calls=False, logit_bias=SHORT)
        assert call[0] == "names"
        jsonschema.validate(call[1], SCHEMA)
    allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "names"}}]}
    choice = {"type": "allowed_tools", "allowed_tools": allowed}
    ((name, _),) = called(world, text, tool_choice=choice, parallel_tool_calls=False, logit_bias=SHORT, seed=1)
    assert name == "names"


def test_a_model_that_may_answer_in_a_form_may_call_as_well(world: World) -> None:
    options: dict[str, Any] = {"tools": [WEATHER], "response_format": FORMAT, "max_tokens": 200}
    answer = whole(world, "[call]", **options).choices[0]
    assert answer.finish_reason == "tool_calls" and answer.message.tool_calls
    jsonschema.validate(json.loads(whole(world, "[hello]", **options).choices[0].message.content or ""), SCHEMA)


def test_arguments_of_a_strict_tool_are_valid_where_it_is_called_at_all(world: World) -> None:
    strict = {"type": "function", "function": {**WEATHER["function"], "strict": True}}  # type: ignore[dict-item]
    answer = whole(world, "[call]", tools=[strict], logit_bias=SHORT, max_tokens=300, seed=1).choices[0]
    for call in answer.message.tool_calls or []:
        assert call.type == "function"
        jsonschema.validate(json.loads(call.function.arguments), strict["function"]["parameters"])  # type: ignore[index]
    assert whole(world, "[hello]", tools=[strict]).choices[0].message.content == HELLO


def test_reasoning_comes_apart_from_the_answer_and_is_counted(world: World) -> None:
    answer = whole(world, "[think]", logprobs=True)
    message: Any = answer.choices[0].message
    assert (message.content, message.reasoning_content) == ("Yes indeed", "Let me see.")
    assert answer.usage is not None and answer.usage.completion_tokens_details is not None
    assert answer.usage.completion_tokens_details.reasoning_tokens == 3
    assert answer.choices[0].logprobs is not None
    assert [one.token for one in answer.choices[0].logprobs.content or []] == ["\n\n", "Yes", " indeed"]
    found = chunks(world, "[think]")
    thoughts = "".join(getattr(one.choices[0].delta, "reasoning_content", None) or "" for one in found)
    assert (streamed(found), thoughts) == ("Yes indeed", "Let me see.")
    # A stop string is one of the answer, not of the reasoning.
    assert whole(world, "[think]", stop="see").choices[0].message.content == "Yes indeed"


def test_a_model_that_is_told_not_to_think_has_had_its_thoughts(world: World) -> None:
    on, off = (whole(world, "[think]", reasoning_effort=effort, max_tokens=1).usage for effort in ("medium", "none"))
    assert on is not None and off is not None and off.prompt_tokens == on.prompt_tokens + 2
    kwargs = {"chat_template_kwargs": {"enable_thinking": False}}
    usage = whole(world, "[think]", max_tokens=1, extra_body=kwargs).usage
    assert usage is not None and usage.prompt_tokens == off.prompt_tokens


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("prompt", ["[hello]", "[think]", "say [] what"])
def test_an_answer_in_a_form_validates_after_any_reasoning(world: World, prompt: str, seed: int) -> None:
    options: dict[str, Any] = {"response_format": FORMAT, "seed": seed, "max_tokens": 200}
    message: Any = whole(world, prompt, **options).choices[0].message
    jsonschema.validate(json.loads(message.content), SCHEMA)
    assert getattr(message, "reasoning_content", None) == ("Let me see." if prompt == "[think]" else None)
    assert streamed(chunks(world, prompt, **options)) == message.content


def test_a_json_object_is_one(world: World) -> None:
    answer = whole(world, "[hello]", response_format={"type": "json_object"}, seed=3, max_tokens=400)
    if answer.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(answer.choices[0].message.content or ""), dict)
    else:
        assert (answer.choices[0].message.content or "").startswith("{")


def test_a_schema_that_can_t_be_enforced_is_refused_by_its_keyword(world: World) -> None:
    schema = {"type": "object", "unevaluatedProperties": False}
    form: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    for ask in (whole, chunks):
        with pytest.raises(openai.BadRequestError, match="unevaluatedProperties"):
            ask(world, "[hello]", response_format=form)
