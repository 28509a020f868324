"""Anthropic's SDK against a model, through the inferlet that answers it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from anthropic import Anthropic

from pie_edge.server.anthropic import routes
from tests.server import talking
from tests.server.host_service import Served, serving

TOOL: dict[str, Any] = {
    "name": "weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(talking.write(tmp_path_factory.mktemp("model") / "tiny"), routes) as found:
        yield found


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[Anthropic]:
    with Anthropic(base_url=served.url, api_key="any", max_retries=0) as made:
        yield made


def ask(text: str, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"model": "tiny", "max_tokens": 40, "messages": messages, "extra_body": {"temperature": 0}, **more}


def test_plain_and_streamed_answers_are_equal(client: Anthropic) -> None:
    whole = client.messages.create(**ask("[hello]"))
    assert [block.to_dict() for block in whole.content] == [{"type": "text", "text": "Hello there, how are you?"}]
    assert (whole.stop_reason, whole.usage.output_tokens) == ("end_turn", 5)
    with client.messages.stream(**ask("[hello]")) as stream:
        streamed = stream.get_final_message()
    assert [block.to_dict() for block in streamed.content] == [block.to_dict() for block in whole.content]
    assert (streamed.stop_reason, streamed.usage.output_tokens) == ("end_turn", 5)


def test_thinking_is_off_unless_it_is_asked_for(client: Anthropic) -> None:
    quiet = client.messages.create(**ask("[thought]"))
    assert all(block.type == "text" for block in quiet.content)
    made = client.messages.create(**ask("[thought]", thinking={"type": "adaptive"}))
    assert [(block.type, getattr(block, "thinking", getattr(block, "text", ""))) for block in made.content] == [
        ("thinking", "Rain or shine?"),
        ("text", "Bring a coat."),
    ]
    assert made.usage.output_tokens_details is not None
    assert made.usage.output_tokens_details.thinking_tokens >= 4


def test_thinking_ends_with_its_budget(client: Anthropic) -> None:
    made = client.messages.create(**ask("[thought]", thinking={"type": "enabled", "budget_tokens": 3}, max_tokens=8))
    first = made.content[0]
    assert first.type == "thinking" and first.thinking == "Rain or"
    assert made.usage.output_tokens_details is not None
    assert made.usage.output_tokens_details.thinking_tokens == 3, "with the marker that began it"
    assert made.usage.output_tokens > 3, "and an answer follows"


def test_a_tool_is_called_and_its_result_read(client: Anthropic, served: Served) -> None:
    asked = ask("[call]", tools=[TOOL])
    made = client.messages.create(**asked)
    assert made.stop_reason == "tool_use"
    [call] = made.content
    assert call.type == "tool_use" and (call.name, call.input) == ("weather", {"city": "Ürzig"})
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "[hello]"}
    messages = [
        *asked["messages"],
        {"role": "assistant", "content": made.content},
        {"role": "user", "content": [result]},
    ]
    second = client.messages.create(**asked | {"messages": messages})
    assert [block.to_dict() for block in second.content] == [{"type": "text", "text": "Hello there, how are you?"}]
    assert (second.usage.cache_read_input_tokens or 0) > 0, "the conversation so far was there"


@pytest.mark.parametrize("more", [{}, {"tools": [{**TOOL, "strict": True}]}])
def test_a_budget_holds_where_a_grammar_does_too(client: Anthropic, more: dict[str, Any]) -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"rain": {"type": "boolean"}}, "required": ["rain"]}
    schema["additionalProperties"] = False
    if not more:
        more = {"output_config": {"format": {"type": "json_schema", "schema": schema}}}
    made = client.messages.create(
        **ask("[thought]", thinking={"type": "enabled", "budget_tokens": 3}, max_tokens=60, **more)
    )
    first, *others = made.content
    assert first.type == "thinking" and first.thinking == "Rain or"
    if "output_config" in more:
        assert isinstance(json.loads(others[0].text)["rain"], bool)  # type: ignore[union-attr]


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "weather"}])
def test_a_call_that_is_forced_is_made_with_valid_arguments(client: Anthropic, choice: dict[str, str]) -> None:
    city = {"type": "object", "properties": {"city": {"enum": ["Trier"]}}, "required": ["city"]}
    tool = {**TOOL, "input_schema": {**city, "additionalProperties": False}}
    single = {**choice, "disable_parallel_tool_use": True}
    made = client.messages.create(**ask("[hello]", tools=[tool], tool_choice=single, max_tokens=80))
    assert made.stop_reason == "tool_use"
    [call] = made.content
    assert call.type == "tool_use" and (call.name, call.input) == ("weather", {"city": "Trier"})


def test_tools_are_left_alone_where_the_choice_is_none(client: Anthropic) -> None:
    made = client.messages.create(**ask("[call]", tools=[TOOL], tool_choice={"type": "none"}))
    assert all(block.type == "text" for block in made.content)


def test_an_answer_goes_on_after_the_assistants_text(client: Anthropic) -> None:
    asked = ask("[hello]")
    asked["messages"].append({"role": "assistant", "content": "Hello there, how are"})
    made = client.messages.create(**asked)
    assert [block.to_dict() for block in made.content] == [{"type": "text", "text": " you?"}]


@pytest.mark.parametrize("stop", ["how", ", how", "there, how are", " y"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_sequence_ends_the_text_before_it(client: Anthropic, stop: str, stream: bool) -> None:
    asked = ask("[hello]", stop_sequences=[stop])
    if stream:
        with client.messages.stream(**asked) as events:
            made = events.get_final_message()
    else:
        made = client.messages.create(**asked)
    text = "".join(block.text for block in made.content if block.type == "text")
    assert text == "Hello there, how are you?".partition(stop)[0]
    assert (made.stop_reason, made.stop_sequence) == ("stop_sequence", stop)


def test_output_is_held_to_its_schema(client: Anthropic) -> None:
    schema = {"type": "object", "properties": {"city": {"enum": ["Trier"]}}, "required": ["city"]}
    format_ = {"type": "json_schema", "schema": schema | {"additionalProperties": False}}
    made = client.messages.create(**ask("[json]", output_config={"format": format_}))
    assert [block.text for block in made.content if block.type == "text"] == ['{"city": "Trier"}']


def test_tokens_are_counted_as_they_are_read(client: Anthropic) -> None:
    asked = ask("[hello]", system="Be brief.", tools=[TOOL])
    counted = client.messages.count_tokens(
        **{name: asked[name] for name in asked if name not in ("max_tokens", "extra_body")}
    )
    used = client.messages.create(**asked).usage
    assert counted.input_tokens == used.input_tokens + (used.cache_read_input_tokens or 0)


def test_the_end_of_the_tokens_is_told(client: Anthropic) -> None:
    made = client.messages.create(**ask("[hello]", max_tokens=2))
    assert (made.stop_reason, made.usage.output_tokens) == ("max_tokens", 2)


def test_a_prompt_beyond_the_context_is_refused_with_its_count(client: Anthropic) -> None:
    with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: \d+ tokens > 1024 maximum"):
        client.messages.create(**ask("x" * 2000))


def test_control_tokens_in_a_text_stay_text(client: Anthropic) -> None:
    counts = [
        client.messages.count_tokens(model="tiny", messages=[{"role": "user", "content": text}]).input_tokens
        for text in ("-", "-<|im_end|>")
    ]
    assert counts[1] - counts[0] == len("<|im_end|>"), "each byte is a token of this model"
