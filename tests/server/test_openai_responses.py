"""Responses, asked by OpenAI's own SDK."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import openai
import pytest
from pydantic import BaseModel

from pie_edge.server.openai import routes
from pie_edge.server.openai.errors import BadRequest
from pie_edge.server.openai.responses_store import Store, Stored
from tests.server.host_service import serving
from tests.server.openai_serving import HELLO, MODEL, WEATHER, World, scripted, world
from tests.support.scripted import Scripted

__all__ = ["scripted", "world"]

TOOL = {"type": "function", **WEATHER["function"]}  # type: ignore[dict-item]
WELL = "Well, fine."
"""What it says to anything, and where a conversation goes on."""


def create(world: World, given: Any, **options: Any) -> Any:
    return world.client.responses.create(model=MODEL, input=given, **options)


def stream(world: World, given: Any, **options: Any) -> list[Any]:
    return list(world.client.responses.create(model=MODEL, input=given, stream=True, **options))


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def comparable(response: Any) -> Any:
    """Without what is made anew each time."""
    found = response.to_dict()
    for name in ("id", "created_at", "completed_at", "usage"):
        del found[name]
    for item in found["output"]:
        del item["id"]
        item.pop("call_id", None)
    return found


@pytest.mark.parametrize("text", ["[hello]", "[think]", "[call]", "[two]"])
def test_a_stream_tells_step_by_step_what_comes_whole(world: World, text: str) -> None:
    options: dict[str, Any] = {"tools": [TOOL], "metadata": {"a": "b"}}
    options |= {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    one, events = create(world, text, **options), stream(world, text, **options)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
    assert events[-1].type == "response.completed"
    assert comparable(events[-1].response) == comparable(one)
    for number, item in enumerate(one.output):
        own = [event for event in events if getattr(event, "output_index", None) == number]
        assert own[0].type == "response.output_item.added" and own[-1].type == "response.output_item.done"
        told = "".join(event.delta for event in own if event.type.endswith(".delta"))
        done = next(event for event in own if event.type.endswith(("_text.done", "_arguments.done")))
        assert told == (item.arguments if item.type == "function_call" else item.content[0].text)
        assert told == (done.arguments if item.type == "function_call" else done.text)


def test_reasoning_text_and_calls_are_items_of_their_own(world: World) -> None:
    thought, message = create(world, "[think]").output
    assert (thought.type, thought.content[0].text, thought.summary) == ("reasoning", "Let me see.", [])
    assert (message.type, message.content[0].text, message.status) == ("message", "Yes indeed", "completed")
    _, first, second = create(world, "[two]", tools=[TOOL]).output
    assert [json.loads(call.arguments)["city"] for call in (first, second)] == ["Oslo", "Rome"]
    assert first.call_id != second.call_id


def test_an_answer_that_is_cut_is_incomplete(world: World) -> None:
    found = create(world, "[hello]", max_output_tokens=2)
    assert (found.status, found.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert found.output_text == "Hello w" and found.output[0].status == "incomplete"
    assert stream(world, "[hello]", max_output_tokens=2)[-1].type == "response.incomplete"


def test_a_response_goes_on_where_the_one_before_it_has_ended(world: World) -> None:
    first = create(world, "[think]", instructions="Be kind.")
    second = create(world, "and?", previous_response_id=first.id, instructions="Be kind.")
    assert second.output_text == WELL
    # All of it, as it was generated, but the last token, whose logits are needed.
    ended = first.usage.input_tokens + first.usage.output_tokens - 1
    assert second.usage.input_tokens_details.cached_tokens == ended - 1
    third = create(world, "so?", previous_response_id=second.id, instructions="Be kind.")
    assert third.usage.input_tokens_details.cached_tokens > second.usage.input_tokens
    # A branch of the same conversation.
    other = create(world, "so?", previous_response_id=first.id, instructions="Be kind.")
    assert other.usage.input_tokens == second.usage.input_tokens + len("so?") - len("and?")
    assert other.usage.input_tokens_details.cached_tokens == ended - 1


def test_other_instructions_have_the_conversation_read_anew(world: World) -> None:
    first = create(world, "[hello]", instructions="Be kind.")
    second = create(world, "[hello]", previous_response_id=first.id)
    spelled = (
        f"<|im_start|>user\n[hello]<|im_end|>\n<|im_start|>assistant\n{HELLO}<|im_end|>\n<|im_start|>user\n[hello]"
    )
    spelled += "<|im_end|>\n<|im_start|>assistant\n<|hello|>"
    assert second.usage.input_tokens == len(world.scripted.tokenizer.encode(spelled).ids)
    assert second.output_text == HELLO


def test_what_a_function_gave_is_put_behind_its_call(world: World) -> None:
    first = create(world, "[call]", tools=[TOOL])
    (call,) = first.output
    given = [{"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}, user("thanks")]
    second = create(world, given, previous_response_id=first.id, tools=[TOOL])
    assert second.output_text == WELL
    assert second.usage.input_tokens_details.cached_tokens == first.usage.input_tokens + first.usage.output_tokens - 2
    # The same without anything that is kept.
    anew = create(world, [user("[call]"), call.to_dict(), *given], tools=[TOOL], store=False)
    assert anew.output_text == WELL


def test_an_answer_in_a_form_is_kept_with_the_tokens_that_no_pass_was_run_for(world: World) -> None:
    class Thing(BaseModel):
        kind: Literal["a long name", "another long name"]

    for text in ("[hello]", "[think]"):
        first = world.client.responses.parse(model=MODEL, input=text, text_format=Thing)
        assert first.output_parsed is not None and first.usage is not None
        second = create(world, "and?", previous_response_id=first.id)
        assert second.output_text == WELL
        assert second.usage.input_tokens_details.cached_tokens >= first.usage.input_tokens


def test_the_sdk_s_own_helpers_read_the_stream(world: World) -> None:
    with world.client.responses.stream(model=MODEL, input="[two]", tools=[TOOL]) as events:  # type: ignore[list-item]
        assert {event.type for event in events} >= {
            "response.output_text.delta",
            "response.function_call_arguments.delta",
        }
        assert [item.type for item in events.get_final_response().output] == [
            "message",
            "function_call",
            "function_call",
        ]
    messages: Any = [user("[call]")]
    with world.client.chat.completions.stream(model=MODEL, messages=messages, tools=[WEATHER]) as chunks:  # type: ignore[list-item]
        assert any(event.type == "tool_calls.function.arguments.delta" for event in chunks)
        assert chunks.get_final_completion().choices[0].message.tool_calls


def test_what_a_response_gave_can_be_sent_back_as_it_is(world: World) -> None:
    first = create(world, "[think]")
    items = [user("[think]"), *(item.to_dict() for item in first.output), user("[hello]")]
    assert create(world, items).output_text == HELLO


def test_a_stored_response_is_shown_listed_and_deleted(world: World) -> None:
    first = create(world, [user("[hello]"), user("more [hello]")], metadata={"run": "1"})
    assert world.client.responses.retrieve(first.id).to_dict() == first.to_dict()
    listed: Any = list(world.client.responses.input_items.list(first.id, order="asc"))
    assert [item.content for item in listed] == ["[hello]", "more [hello]"]
    shared = world.served.launcher.runtime.engine.shared
    assert first.id in shared
    world.client.responses.delete(first.id)
    assert first.id not in shared
    for gone in (lambda: world.client.responses.retrieve(first.id), lambda: world.client.responses.delete(first.id)):
        with pytest.raises(openai.NotFoundError):
            gone()
    with pytest.raises(openai.BadRequestError) as refused:
        create(world, "x", previous_response_id=first.id)
    assert refused.value.code == "previous_response_not_found"


def test_one_that_isn_t_to_be_stored_is_gone(world: World) -> None:
    before = len(world.served.launcher.runtime.engine.shared)
    found = create(world, "[hello]", store=False)
    assert len(world.served.launcher.runtime.engine.shared) == before
    with pytest.raises(openai.NotFoundError):
        world.client.responses.retrieve(found.id)


def test_a_long_conversation_is_shortened_if_it_may_be(world: World) -> None:
    turns = [user(f"{number} {'word ' * 30}") for number in range(10)]
    with pytest.raises(openai.BadRequestError) as refused:
        create(world, [*turns, user("[hello]")])
    assert refused.value.code == "context_length_exceeded"
    found = create(world, [{"role": "system", "content": "Be kind."}, *turns, user("[hello]")], truncation="auto")
    limit = world.served.service.card.context
    assert found.output_text == HELLO and limit * 0.6 < found.usage.input_tokens <= limit * 7 / 8


@pytest.fixture
def short(scripted: tuple[Scripted, Path]) -> Iterator[World]:
    """A server that keeps responses for a second, and has 40 pages of 16 tokens."""
    made, folder = scripted
    with (
        serving(folder, lambda service: routes(service, keep_seconds=1.0), kv_memory=80 * 4096) as served,
        openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client,
    ):
        yield World(client, served, made)


def test_pages_and_response_are_kept_for_their_time(short: World) -> None:
    engine = short.served.launcher.runtime.engine
    first = create(short, "[hello]")
    assert first.id in engine.shared
    short.served.until(lambda: first.id not in engine.shared)
    short.served.until(lambda: not found(short, first.id))


def test_pages_that_are_needed_are_given_up_and_the_tokens_are_read_again(short: World) -> None:
    engine = short.served.launcher.runtime.engine
    first = create(short, "[hello] " + "w" * 100)
    assert create(short, "x" * 500, store=False).output_text == WELL
    assert first.id not in engine.shared and engine.shared.dropped == 1
    second = create(short, "and?", previous_response_id=first.id)
    assert second.output_text == WELL
    assert second.usage.input_tokens_details.cached_tokens < first.usage.input_tokens


def found(world: World, id: str) -> bool:
    try:
        world.client.responses.retrieve(id)
    except openai.NotFoundError:
        return False
    return True


def test_a_store_forgets_the_oldest_and_what_is_past_its_time() -> None:
    now = [0.0]
    store = Store(10, clock=lambda: now[0])
    for name in ("a", "b"):
        store.add(Stored({"id": name}, [], [], None, [], None, None))
        now[0] += 6
    assert store.find("b").id == "b"
    with pytest.raises(BadRequest, match="'a' not found"):
        store.previous("a")


JSON_FORMAT = {"format": {"type": "json_schema", "name": "letter", "schema": {"enum": ["a"]}}}


PARIS = {"type": "object", "properties": {"city": {"enum": ["Paris"]}}, "required": ["city"]}
PARIS_TOOL = TOOL | {"parameters": PARIS | {"additionalProperties": False}}


@pytest.mark.parametrize("options", [{"text": JSON_FORMAT}, {"tools": [PARIS_TOOL], "tool_choice": "required"}])
@pytest.mark.parametrize("streamed", [False, True])
def test_what_is_written_under_a_grammar_is_kept_and_goes_on(
    world: World, options: dict[str, Any], streamed: bool
) -> None:
    """Tokens that a grammar leaves no choice about are in the answer without a pass of their own."""
    found = stream(world, "[call]", **options)[-1].response if streamed else create(world, "[call]", **options)
    assert found.status == "completed", found.error
    if "text" in options:
        assert found.output_text == '"a"'
    call = found.output[-1]
    more: Any = (
        "And?"
        if call.type == "message"
        else [{"type": "function_call_output", "call_id": call.call_id, "output": "clear"}]
    )
    after = create(world, more, previous_response_id=found.id, tools=options.get("tools", openai.NOT_GIVEN))
    assert (after.status, after.previous_response_id) == ("completed", found.id)
