"""What OpenAI's API has and this server hasn't is refused by name, in OpenAI's shape; nothing is ignored in silence."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncGenerator, Iterator
from dataclasses import replace
from typing import Any

import pytest
from openai.resources import Completions, Embeddings, chat, responses
from starlette.applications import Starlette
from starlette.testclient import TestClient

from pie_edge.errors import (
    ContextOverflow,
    DeviceLost,
    GrammarError,
    InferletFailed,
    InferletTimeout,
    NotReady,
    OutOfMemory,
    OutOfPages,
    Overloaded,
    PieError,
    TemplateError,
)
from pie_edge.server.generation import Began, Card, Conversation, Ended, Event, Piece, Request, Usage
from pie_edge.server.openai import routes
from pie_edge.server.openai.chat_request import ChatBody
from pie_edge.server.openai.completions_request import CompletionsBody
from pie_edge.server.openai.embeddings import EmbeddingsBody
from pie_edge.server.openai.parameters import Parameters
from pie_edge.server.openai.responses_request import ResponsesBody
from tests.server.loopback import serving

BODIES: dict[str, tuple[type[Parameters], dict[str, Any]]] = {
    "chat/completions": (ChatBody, {"model": "m", "messages": [{"role": "user", "content": "hi"}]}),
    "completions": (CompletionsBody, {"model": "m", "prompt": "hi"}),
    "responses": (ResponsesBody, {"model": "m", "input": "hi"}),
    "embeddings": (EmbeddingsBody, {"model": "m", "input": "hi"}),
}
SDK = {
    "chat/completions": chat.Completions.create,
    "completions": Completions.create,
    "responses": responses.Responses.create,
    "embeddings": Embeddings.create,
}


FORMAT = {"type": "json_schema", "name": "x", "schema": {}}
SCHEMA = {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}}
STRICT = [{"type": "function", "function": {"name": "f", "strict": True}}]


class Told:
    """A service without a model: it answers with ``events``, then fails with ``error`` if there is one."""

    def __init__(self) -> None:
        self.card = Card("m", 100, 0, True, False, vocabulary=100)
        self.events: list[Event] = []
        self.error: PieError | None = None
        self.requests: list[Request] = []

    async def generate(self, request: Request) -> AsyncGenerator[Event, None]:
        self.requests.append(request)
        for event in self.events:
            yield event
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error

    async def count(self, prompt: Any) -> int:
        return 1

    async def forget(self, name: str) -> None: ...

    async def embed(self, texts: Any, dimensions: int | None = None) -> tuple[list[list[float]], int]:
        return [[1.0, 0.5] for _ in texts], 2


@pytest.fixture
def told() -> Told:
    service = Told()
    service.events = [Began(3, 1), Piece(0, "Hi"), Ended(0, "stop"), Usage(3, 1, 2)]
    return service


@pytest.fixture
def client(told: Told) -> Iterator[TestClient]:
    with TestClient(Starlette(routes=routes(told))) as opened:
        yield opened


def post(client: TestClient, path: str, **more: Any) -> Any:
    return client.post(f"/v1/{path}", json={**BODIES[path][1], **more})


def error(response: Any, status: int = 400) -> dict[str, Any]:
    assert response.status_code == status, response.text
    found: dict[str, Any] = response.json()["error"]
    assert set(found) == {"message", "type", "param", "code"}
    return found


@pytest.mark.parametrize("path", BODIES)
def test_every_parameter_that_the_sdk_has_is_known_or_refused(path: str, client: TestClient) -> None:
    """By the SDK's own signatures; what it sends in headers, and to the transport, are no parameters."""
    import inspect

    of_sdk = set(inspect.signature(inspect.unwrap(SDK[path])).parameters)
    of_sdk -= {"self", "extra_headers", "extra_query", "extra_body", "timeout"}
    ours = {field.alias or name for name, field in BODIES[path][0].model_fields.items()}
    assert len(of_sdk & ours) > len(of_sdk) * 0.8
    for name in of_sdk - ours:
        assert error(post(client, path, **{name: "x"}))["code"] == "unknown_parameter"


@pytest.mark.parametrize("path", BODIES)
def test_what_is_refused_is_refused_by_name_and_neutral_values_aren_t(path: str, client: TestClient) -> None:
    for name, field in BODIES[path][0].model_fields.items():
        mark = field.json_schema_extra
        if not isinstance(mark, dict) or "x-refused" not in mark:
            continue
        found = error(post(client, path, **{name: {"strange": 1}}))
        assert (found["param"], found["code"]) == (name, "unsupported_parameter")
        neutral: Any = mark["x-neutral"]
        for value in [*neutral, None]:
            assert post(client, path, **{name: value}).status_code == 200


@pytest.mark.parametrize("path", BODIES)
def test_unknown_parameters_missing_ones_and_what_is_no_json_are_refused(path: str, client: TestClient) -> None:
    found = error(post(client, path, temprature=1))
    assert (found["param"], found["code"]) == ("temprature", "unknown_parameter")
    for name in BODIES[path][1]:
        body = {key: value for key, value in BODIES[path][1].items() if key != name}
        found = error(client.post(f"/v1/{path}", json=body))
        assert (found["param"], found["code"]) == (name, "missing_required_parameter")
    for data in (b"", b"{", b"[]", b"nothing", b'{"model": "\\ud800"}', b"\xff", b"[" * 100_000):
        assert error(client.post(f"/v1/{path}", content=data))["type"] == "invalid_request_error"


ARRAY = {"type": "array"}
CALL = {"type": "function_call", "call_id": "a", "name": "f"}
OUTPUT = {"type": "function_call_output", "call_id": "a", "output": ""}


def calling(arguments: str) -> list[dict[str, Any]]:
    """Two calls, the second with these arguments."""
    calls = [("a", "{}"), ("b", arguments)]
    made = [{"id": id, "type": "function", "function": {"name": "f", "arguments": given}} for id, given in calls]
    answers = [{"role": "tool", "tool_call_id": id, "content": ""} for id, _ in calls]
    return [{"role": "assistant", "content": None, "tool_calls": made}, *answers]


WRONG = {
    "chat/completions": [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]}, "messages[0].content[0].text"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": "x", "extra": 1}]}, "messages[0].extra"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": "1"}, "temperature"),
        ({"top_p": -0.1}, "top_p"),
        ({"n": 0}, "n"),
        ({"stop": [""]}, "stop[0]"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"logit_bias": {"a": 1}}, "logit_bias"),
        ({"logit_bias": {"100": 1}}, "logit_bias"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"max_tokens": 1, "max_completion_tokens": 1}, "max_tokens"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
        ({"tools": [{"type": "function", "function": {"name": 'a"b'}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}] * 2}, "tools"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": ARRAY}}]},
            "tools[0].function.parameters",
        ),
        ({"reasoning_effort": "high"}, "reasoning_effort"),
        ({"reasoning_effort": "medium"}, "reasoning_effort"),
        ({"chat_template_kwargs": {"enable_thinking": True}}, "chat_template_kwargs.enable_thinking"),
        ({"repetition_penalty": 1e38}, "repetition_penalty"),
        ({"messages": calling("{")}, "messages[0].tool_calls[1].function.arguments"),
        ({"messages": calling('{"a": NaN}')}, "messages[0].tool_calls[1].function.arguments"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "a b", "schema": {}}}}, None),
    ],
    "completions": [({"prompt": []}, "prompt"), ({"logprobs": 21}, "logprobs"), ({"best_of": 1, "n": 2}, "best_of")],
    "responses": [
        ({"input": []}, "input"),
        ({"input": [{"type": "image_generation_call", "id": "x"}]}, "input[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_text", "text": 1}]}]}, "input[0].content[0].text"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tool_choice": {"type": "file_search"}}, "tool_choice.type"),
        ({"include": ["reasoning.encrypted_content"]}, "include[0]"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"text": {"verbosity": 1}}, "text.verbosity"),
        ({"reasoning": {"summary": "detailed"}}, "reasoning.summary"),
        ({"tools": [{"type": "function", "name": "f", "parameters": ARRAY}]}, "tools[0].parameters"),
        ({"reasoning": {"effort": "low"}}, "reasoning.effort"),
        ({"reasoning": {"effort": "medium"}}, "reasoning.effort"),
        ({"input": [CALL | {"arguments": "[1"}, OUTPUT]}, "input[0].arguments"),
        ({"previous_response_id": "resp_x"}, "previous_response_id"),
    ],
}


@pytest.mark.parametrize(
    ("path", "more", "param"), [(path, more, param) for path, cases in WRONG.items() for more, param in cases]
)
def test_what_is_wrong_is_told_by_its_place(
    path: str, more: dict[str, Any], param: str | None, client: TestClient
) -> None:
    found = error(post(client, path, **more))
    assert found["type"] == "invalid_request_error"
    assert param is None or found["param"] == param, found


@pytest.mark.parametrize(
    ("failure", "status", "kind", "code"),
    [
        (ContextOverflow("too long", 101, 100), 400, "invalid_request_error", "context_length_exceeded"),
        (TemplateError("no template"), 400, "invalid_request_error", None),
        (Overloaded("full"), 429, "rate_limit_error", "rate_limit_exceeded"),
        (NotReady("loading"), 503, "server_error", "server_unavailable"),
        (OutOfPages("no pages"), 503, "server_error", "server_unavailable"),
        (DeviceLost("gone"), 503, "server_error", "server_unavailable"),
        (OutOfMemory("no room"), 503, "server_error", "server_unavailable"),
        (InferletTimeout("slow"), 504, "server_error", "timeout"),
        (InferletFailed("bug"), 500, "server_error", None),
        (InferletFailed("x", cause="template"), 400, "invalid_request_error", None),
    ],
)
@pytest.mark.parametrize("path", ["chat/completions", "completions", "responses"])
def test_failures_have_their_status_before_a_stream_and_are_told_in_it_after(
    failure: PieError, status: int, kind: str, code: str | None, path: str, told: Told, client: TestClient
) -> None:
    told.error, begun = failure, told.events[:2]
    told.events = []
    for stream in (False, True):
        response = post(client, path, stream=stream)
        found = error(response, status)
        assert (found["type"], found["code"]) == (kind, code)
        assert ("retry-after" in response.headers) == (status in (429, 503))
        if isinstance(failure, ContextOverflow):
            assert "100 tokens" in found["message"] and "101 tokens" in found["message"]
    told.events = begun
    response = post(client, path, stream=True)
    assert response.status_code == 200
    last = json.loads(response.text.strip().rsplit("data: ", 1)[1])
    if path == "responses":
        assert last["type"] == "response.failed" and last["response"]["error"]["message"]
    else:
        assert (last["error"]["type"], last["error"]["code"]) == (kind, code)
        assert "[DONE]" not in response.text


@pytest.mark.parametrize(
    ("path", "more", "failure", "param"),
    [
        ("chat/completions", {}, ContextOverflow("too long", 101, 100), "messages"),
        ("completions", {}, ContextOverflow("too long", 101, 100), "prompt"),
        ("completions", {"prompt": ["a"]}, ContextOverflow("too long", 101, 100), "prompt[0]"),
        ("responses", {}, ContextOverflow("too long", 101, 100), "input"),
        ("chat/completions", SCHEMA, GrammarError("not this"), "response_format.json_schema.schema"),
        ("responses", {"text": {"format": FORMAT}}, GrammarError("not this"), "text.format.schema"),
        ("chat/completions", {"tools": STRICT}, GrammarError("not this"), "tools"),
        ("chat/completions", {}, TemplateError("not these"), "messages"),
        ("responses", {}, TemplateError("not these"), "input"),
    ],
)
def test_what_is_found_wrong_later_is_told_by_its_place_too(
    path: str, more: dict[str, Any], failure: PieError, param: str, told: Told, client: TestClient
) -> None:
    told.error, told.events = failure, []
    for stream in (False, True):
        found = error(post(client, path, stream=stream, **more))
        assert found["param"] == param
        assert not isinstance(failure, ContextOverflow) or f"your {param} resulted in 101 tokens" in found["message"]


@pytest.mark.parametrize("path", ["chat/completions", "responses"])
def test_tools_without_a_place_in_the_chat_template_are_told_by_name(path: str, told: Told, client: TestClient) -> None:
    told.card = replace(told.card, tools=False)
    function = {"name": "f"}
    tool = {"type": "function", **({"function": function} if path.startswith("chat") else function)}
    found = error(post(client, path, tools=[tool]))
    assert found["param"] == "tools" and "no place for tools" in found["message"]
    assert post(client, path, tools=[tool], tool_choice="none").status_code == 200


NOT_AT_ALL: list[tuple[str, dict[str, Any]]] = [
    ("chat/completions", {"reasoning_effort": "none"}),
    ("chat/completions", {"chat_template_kwargs": {"enable_thinking": False}}),
    ("responses", {"reasoning": {"effort": "none"}}),
]


@pytest.mark.parametrize(("path", "more"), NOT_AT_ALL)
@pytest.mark.parametrize("thinks", ["never", "switched", "always"])
def test_a_model_is_told_not_to_think_where_that_can_be_told(
    path: str, more: dict[str, Any], thinks: Any, told: Told, client: TestClient
) -> None:
    told.card = replace(told.card, thinks=thinks)
    response = post(client, path, **more)
    if thinks == "always":
        assert error(response)["param"] in (
            "reasoning_effort",
            "chat_template_kwargs.enable_thinking",
            "reasoning.effort",
        )
        return
    assert response.status_code == 200
    prompt = told.requests[-1].prompt
    assert isinstance(prompt, Conversation) and prompt.thinking is (False if thinks == "switched" else None)


def test_tokens_that_the_model_hasn_t_are_told_by_their_place(client: TestClient) -> None:
    for prompt, param in (([5, 100], "prompt[1]"), ([[5], [6, 7, 100]], "prompt[1][2]")):
        assert error(post(client, "completions", prompt=prompt))["param"] == param


class Endless(Told):
    """Answers with ``events``, and then with nothing, for ever. ``ended`` counts those whose client has gone."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = 0

    async def generate(self, request: Request) -> AsyncGenerator[Event, None]:
        try:
            for event in self.events:
                yield event
            await asyncio.Event().wait()
        finally:
            self.ended += 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["chat/completions", "completions", "responses"])
@pytest.mark.parametrize("told_before", [0, 2])
def test_a_client_that_goes_away_at_any_point_ends_its_generation(path: str, stream: bool, told_before: int) -> None:
    service = Endless()
    service.events = [Began(3, 1), Piece(0, "Hi")][:told_before]
    body = json.dumps({**BODIES[path][1], "stream": stream}).encode()
    with serving(routes(service)) as url:
        address = (url.partition("//")[2].split(":")[0], int(url.rpartition(":")[2]))
        with socket.create_connection(address) as client:
            head = f"POST /v1/{path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            client.sendall(head.encode() + body)
            if stream and told_before:
                while b"Hi" not in client.recv(65536):
                    pass
            else:
                time.sleep(0.2)
            assert not service.ended
        deadline = time.monotonic() + 5
        while not service.ended:
            assert time.monotonic() < deadline, "it goes on for nobody"
            time.sleep(0.01)


def test_embeddings_are_given_where_the_model_makes_them(told: Told, client: TestClient) -> None:
    found = post(client, "embeddings", input=["a", "b"]).json()
    assert [one["embedding"] for one in found["data"]] == [[1.0, 0.5]] * 2 and found["usage"]["total_tokens"] == 2
    assert post(client, "embeddings", encoding_format="base64").json()["data"][0]["embedding"] == "AACAPwAAAD8="


def test_what_is_left_open_is_left_to_the_model_and_else_as_openai_has_it(told: Told, client: TestClient) -> None:
    assert post(client, "chat/completions").status_code == post(client, "responses").status_code == 200
    assert post(client, "completions").status_code == 200
    chat, response, completion = told.requests
    for one in told.requests:
        assert (one.sampling.temperature, one.sampling.top_p, one.sampling.seed) == (None, None, None)
        assert (one.sampling.repetition, one.sampling.presence, one.sampling.frequency) == (None, 0.0, 0.0)
        assert (one.choices, one.tool_choice, one.constraint, one.logprobs) == (1, "auto", None, None)
    assert (chat.max_tokens, response.max_tokens, completion.max_tokens) == (None, None, 16)
    assert (chat.keep, completion.keep) == (None, None) and response.keep is not None
    assert replace(response.sampling) == chat.sampling
