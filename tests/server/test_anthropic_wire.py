"""Anthropic's own SDK against the routes, on loopback; what the model says is told by the test."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

import anthropic
import pytest
from anthropic import Anthropic

from pie_edge.errors import ContextOverflow, InferletFailed, ModelNotFound, NotReady, Overloaded, PieError
from pie_edge.server.anthropic import error_response, routes
from pie_edge.server.anthropic.signature import sign
from pie_edge.server.generation import Began, CallArguments, CallBegan, Piece, Thought
from tests.server.loopback import serving
from tests.server.told import Told, answer

ASK: dict[str, Any] = {"model": "tiny", "max_tokens": 50, "messages": [{"role": "user", "content": "Hello"}]}
TOOL: dict[str, Any] = {
    "name": "weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
EVERYTHING = answer(
    Thought(0, "Rain"),
    Thought(0, "? 🌧"),
    Piece(0, "Let me "),
    Piece(0, "see: "),
    CallBegan(0, 0, "call_1", "weather"),
    CallArguments(0, 0, '{"city": '),
    CallArguments(0, 0, '"Ürzig"}'),
    CallBegan(0, 1, "call_2", "weather"),
    CallArguments(0, 1, "{}"),
    reason="calls",
)

Connect = Callable[[Told], Anthropic]


@pytest.fixture
def connect() -> Iterator[Connect]:
    with ExitStack() as stack:

        def connected(service: Told) -> Anthropic:
            address = stack.enter_context(serving(routes(service)))
            return stack.enter_context(Anthropic(base_url=address, api_key="any", max_retries=0))

        yield connected


def test_a_message_has_text_and_counts(connect: Connect) -> None:
    made = connect(Told(answer(Piece(0, "Hi"), Piece(0, " there")))).messages.create(**ASK)
    assert [(block.type, getattr(block, "text", "")) for block in made.content] == [("text", "Hi there")]
    assert (made.role, made.model, made.stop_reason, made.stop_sequence) == ("assistant", "tiny", "end_turn", None)
    usage = made.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.cache_creation_input_tokens) == (6, 4, 0)
    assert usage.output_tokens == 7 and usage.output_tokens_details is not None
    assert usage.output_tokens_details.thinking_tokens == 2
    assert made._request_id and made._request_id.startswith("req_")


def test_everything_a_message_can_hold_comes_in_its_blocks(connect: Connect) -> None:
    made = connect(Told(EVERYTHING)).messages.create(**ASK, tools=[TOOL])
    assert [block.to_dict() for block in made.content] == [
        {"type": "thinking", "thinking": "Rain? 🌧", "signature": sign("Rain? 🌧")},
        {"type": "text", "text": "Let me see: "},
        {"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "Ürzig"}},
        {"type": "tool_use", "id": "call_2", "name": "weather", "input": {}},
    ]
    assert made.stop_reason == "tool_use"


@pytest.mark.parametrize(
    "events",
    [
        EVERYTHING,
        answer(Piece(0, "a"), Piece(0, "b"), reason="length"),
        answer(Piece(0, "a"), reason="stop-string", stopped_by="END"),
        answer(),
    ],
)
def test_a_stream_adds_up_to_the_message(connect: Connect, events: list[Any]) -> None:
    client = connect(Told(events))
    whole = client.messages.create(**ASK)
    with client.messages.stream(**ASK) as stream:
        kinds = [event.type for event in stream]
        streamed = stream.get_final_message()
    assert streamed.to_dict() | {"id": ""} == whole.to_dict() | {"id": ""}
    assert kinds[0] == "message_start" and kinds[-1] == "message_stop"


def test_a_stream_has_anthropics_events_in_their_order(connect: Connect) -> None:
    stream = connect(Told(EVERYTHING)).messages.create(**ASK, stream=True)
    kinds = [
        (event.type, event.delta.type if event.type == "content_block_delta" else None, getattr(event, "index", None))
        for event in stream
    ]
    assert kinds == [
        ("message_start", None, None),
        ("content_block_start", None, 0),
        ("content_block_delta", "thinking_delta", 0),
        ("content_block_delta", "thinking_delta", 0),
        ("content_block_delta", "signature_delta", 0),
        ("content_block_stop", None, 0),
        ("content_block_start", None, 1),
        ("content_block_delta", "text_delta", 1),
        ("content_block_delta", "text_delta", 1),
        ("content_block_stop", None, 1),
        ("content_block_start", None, 2),
        ("content_block_delta", "input_json_delta", 2),
        ("content_block_delta", "input_json_delta", 2),
        ("content_block_stop", None, 2),
        ("content_block_start", None, 3),
        ("content_block_delta", "input_json_delta", 3),
        ("content_block_stop", None, 3),
        ("message_delta", None, None),
        ("message_stop", None, None),
    ]


@pytest.mark.parametrize(
    ("reason", "stop_reason"),
    [("length", "max_tokens"), ("context", "model_context_window_exceeded"), ("stop", "end_turn")],
)
def test_why_a_message_ended(connect: Connect, reason: str, stop_reason: str) -> None:
    assert connect(Told(answer(Piece(0, "a"), reason=reason))).messages.create(**ASK).stop_reason == stop_reason


def test_a_stop_sequence_is_named(connect: Connect) -> None:
    service = Told(answer(Piece(0, "a"), reason="stop-string", stopped_by="END"))
    made = connect(service).messages.create(**ASK, stop_sequences=["END", "x"])
    assert (made.stop_reason, made.stop_sequence) == ("stop_sequence", "END")
    assert service.asked[0].stop == ("END", "x")


@pytest.mark.parametrize(
    ("text", "input"),
    [('{"city": "Ür", "days": [1, 2', {"city": "Ür", "days": [1, 2]}), ('{"city": "Ü', {"city": "Ü"})],
)
def test_arguments_that_were_cut_come_as_far_as_they_go(connect: Connect, text: str, input: dict[str, Any]) -> None:
    events = answer(CallBegan(0, 0, "call_1", "weather"), CallArguments(0, 0, text), reason="length")
    made = connect(Told(events)).messages.create(**ASK, tools=[TOOL])
    assert made.content[0].to_dict()["input"] == input
    assert made.stop_reason == "max_tokens"


@pytest.mark.parametrize("text", ['{"city": NaN}', "[1]", "{'city': 1}", '{"city": "\\ud800"}'])
def test_arguments_that_are_no_object_are_told_as_they_are(connect: Connect, text: str) -> None:
    events = answer(CallBegan(0, 0, "call_1", "weather"), CallArguments(0, 0, text), reason="calls")
    made = connect(Told(events)).messages.create(**ASK, tools=[TOOL])
    assert made.content[0].to_dict()["input"] == {"INVALID_JSON": text}


def test_thinking_and_calls_go_back_with_their_results(connect: Connect) -> None:
    service = Told(EVERYTHING)
    client = connect(service)
    first = client.messages.create(**ASK, tools=[TOOL])
    results = [{"type": "tool_result", "tool_use_id": name, "content": "clear"} for name in ("call_1", "call_2")]
    history = [*ASK["messages"], {"role": "assistant", "content": first.content}, {"role": "user", "content": results}]
    client.messages.create(model="tiny", max_tokens=50, messages=history, tools=[TOOL])
    messages = list(service.asked[1].prompt.messages)  # type: ignore[union-attr]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool"]
    assert messages[1]["reasoning_content"] == "Rain? 🌧"
    assert [call["function"]["arguments"] for call in messages[1]["tool_calls"]] == ['{"city": "Ürzig"}', "{}"]


def test_tokens_are_counted(connect: Connect) -> None:
    service = Told()
    counted = connect(service).messages.count_tokens(
        model="tiny", messages=ASK["messages"], system="Be brief.", tools=[TOOL]
    )
    assert counted.input_tokens == 42
    assert [message["role"] for message in service.counted[0].messages] == ["system", "user"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("error", "kind", "told"),
    [
        (ContextOverflow("600 tokens, and the model reads 512"), anthropic.BadRequestError, "prompt is too long: 600"),
        (InferletFailed("x", cause="context-overflow"), anthropic.BadRequestError, "prompt is too long"),
        (ModelNotFound("no such model"), anthropic.NotFoundError, "no such model"),
        (Overloaded("64 requests wait"), anthropic.RateLimitError, "64 requests wait"),
        (NotReady("the model is loading"), anthropic.ServiceUnavailableError, "loading"),
        (PieError("something"), anthropic.InternalServerError, "something"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_errors_are_the_sdks_own(
    connect: Connect, error: PieError, kind: type[anthropic.APIStatusError], told: str, stream: bool
) -> None:
    with pytest.raises(kind) as raised:
        connect(Told([error])).messages.create(**ASK, stream=stream)
    body = raised.value.body
    assert isinstance(body, dict) and body["type"] == "error" and body["request_id"].startswith("req_")
    assert told in body["error"]["message"]
    retry = raised.value.response.headers.get("retry-after")
    assert (retry is not None) == (raised.value.status_code in (429, 503))


def test_an_error_in_the_midst_of_a_stream_is_an_event_of_it(connect: Connect) -> None:
    stream = connect(Told([Began(10, 0), Piece(0, "Hi"), NotReady("the engine is started anew")])).messages.create(
        **ASK, stream=True
    )
    with pytest.raises(anthropic.APIStatusError, match="overloaded_error"):
        list(stream)


def test_another_model_and_an_unknown_field_are_refused(connect: Connect) -> None:
    client = connect(Told())
    with pytest.raises(anthropic.NotFoundError, match="'other'.*'tiny'"):
        client.messages.create(**ASK | {"model": "other"})
    with pytest.raises(anthropic.BadRequestError, match="mcp_servers"):
        client.messages.create(**ASK, extra_body={"mcp_servers": []})


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"model": NaN}', b'{"a": "\\ud800"}', b"\xff", b"[" * 100_000])
def test_a_body_that_is_none_is_refused(connect: Connect, body: bytes) -> None:
    address = f"{connect(Told()).base_url}/v1/messages"
    with pytest.raises(OSError, match="400") as refused:
        urlopen(HttpRequest(address, body, {"content-type": "application/json"}))
    told = json.loads(refused.value.read())  # type: ignore[attr-defined]
    refused.value.close()  # type: ignore[attr-defined]
    assert told["error"]["type"] == "invalid_request_error"


def test_a_silent_stream_pings(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pie_edge.server.anthropic.endpoints.PING_SECONDS", 0.02)
    address = f"{connect(Told([Began(1, 0), 0.2, *answer()[1:]])).base_url}/v1/messages"
    request = HttpRequest(address, json.dumps(ASK | {"stream": True}).encode(), {"content-type": "application/json"})
    with urlopen(request) as response:
        assert response.read().count(b'event: ping\ndata: {"type":"ping"}\n\n') > 2


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_ends_its_generation(connect: Connect, stream: bool) -> None:
    service = Told([Began(1, 0), Piece(0, "Hi"), 60.0])
    client = connect(service)
    if stream:
        with client.messages.create(**ASK, stream=True) as events:
            next(iter(events))
    else:
        with pytest.raises(anthropic.APITimeoutError):
            client.messages.create(**ASK, timeout=0.3)
    until = time.monotonic() + 5
    while not service.ended and time.monotonic() < until:
        time.sleep(0.01)
    assert service.ended == 1


def test_what_the_app_refuses_by_itself_has_anthropics_shape() -> None:
    refused = error_response(401, PieError("the key is wrong"))
    assert json.loads(bytes(refused.body))["error"] == {"type": "authentication_error", "message": "the key is wrong"}
