"""The three providers on one port: whose shape an answer has that none of their endpoints gives."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.types import ASGIApp

from pie_edge.config import ServeSettings
from pie_edge.server import app
from pie_edge.server.anthropic.signature import sign
from tests.server.told import Told

ANTHROPIC = {"anthropic-version": "2023-06-01"}
GOOGLE = {"x-goog-api-key": "secret"}


def served(**settings: Any) -> ASGIApp:
    return app.build(Told(), ServeSettings(**settings), []).asgi


def ask(
    asked: ASGIApp, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
) -> tuple[int, Any]:
    """The status, and the JSON of the answer."""
    sent: list[Any] = []
    coming = [{"type": "http.request", "body": body, "more_body": False}]
    path, _, query = path.partition("?")
    named = {"host": "localhost", "content-type": "application/json", **(headers or {})}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in named.items()],
        "client": None,
        "server": ("localhost", 80),
    }

    async def receive() -> Any:
        if not coming:
            await asyncio.get_running_loop().create_future()
        return coming.pop()

    async def send(message: Any) -> None:
        sent.append(message)

    async def whole() -> None:
        await asked(scope, receive, send)

    asyncio.run(whole())
    data = b"".join(message.get("body", b"") for message in sent)
    return sent[0]["status"], json.loads(data) if data.startswith((b"{", b"[")) else data.decode()


def shape(answer: Any) -> str:
    match answer:
        case {"type": "error", "error": {"type": str(), "message": str()}, "request_id": str()}:
            return "anthropic"
        case {"error": {"code": int(), "message": str(), "status": str()}}:
            return "google"
        case {"error": {"message": str(), "type": str(), "param": _, "code": _}}:
            return "openai"
    return "none"


@pytest.mark.parametrize(
    ("path", "whose"),
    [
        ("/v1/messages", "anthropic"),
        ("/v1/messages/count_tokens", "anthropic"),
        ("/v1/messages/batches", "anthropic"),
        ("/v1beta/models/tiny:generateContent", "google"),
        ("/v1/models/tiny:generateContent", "google"),
        ("/v1beta/files", "google"),
        ("/v1/chat/completions", "openai"),
        ("/v1/nothing", "openai"),
    ],
)
def test_whoever_owns_a_path_says_what_is_refused_before_it(path: str, whose: str) -> None:
    status, answer = ask(served(api_keys=("secret",)), "POST", path, b"{}")
    assert (status, shape(answer)) == (401, whose)
    status, answer = ask(served(body=10), "POST", path, b"{" + b" " * 20 + b"}")
    assert (status, shape(answer)) == (413, whose)
    status, answer = ask(served(), "DELETE", path)
    assert (status in (404, 405), shape(answer)) == (True, whose)


@pytest.mark.parametrize(
    ("headers", "path", "whose"),
    [
        ({}, "/v1/models", "openai"),
        (ANTHROPIC, "/v1/models", "anthropic"),
        (GOOGLE, "/v1/models", "google"),
        ({}, "/v1beta/models", "google"),
        ({}, "/v1/models/tiny", "openai"),
        (ANTHROPIC, "/v1/models/tiny", "anthropic"),
        (GOOGLE, "/v1/models/tiny", "google"),
    ],
)
def test_models_are_told_in_the_clients_own_shape(headers: dict[str, str], path: str, whose: str) -> None:
    status, answer = ask(served(), "GET", path, headers=headers)
    one = (answer.get("data") or answer.get("models") or [answer])[0]
    own = {"openai": ("object", "model"), "anthropic": ("type", "model"), "google": ("name", "models/tiny")}
    field, value = own[whose]
    assert (status, one[field]) == (200, value)
    other = path.removesuffix("/tiny") + "/other"
    status, answer = ask(served(), "GET", other, headers=headers)
    assert (status, shape(answer)) == (404, whose)


@pytest.mark.parametrize(
    ("headers", "path", "named"),
    [
        (ANTHROPIC, "/v1/models?limit=0", "limit"),
        (ANTHROPIC, "/v1/models?limit=many", "limit"),
        (ANTHROPIC, "/v1/models?after_id=tiny", "after_id"),
        (ANTHROPIC, "/v1/models/tiny?limit=1", "limit"),
        (GOOGLE, "/v1beta/models?pageSize=1001", "pageSize"),
        (GOOGLE, "/v1beta/models?pageToken=x", "pageToken"),
        (GOOGLE, "/v1/models?filter=x", "filter"),
    ],
)
def test_what_pages_a_list_of_one_has_not_is_refused_by_name(headers: dict[str, str], path: str, named: str) -> None:
    status, answer = ask(served(), "GET", path, headers=headers)
    assert status == 400 and named in answer["error"]["message"]


def test_pages_of_any_size_have_the_one_model() -> None:
    status, answer = ask(served(), "GET", "/v1/models?limit=20", headers=ANTHROPIC)
    assert status == 200 and [one["id"] for one in answer["data"]] == ["tiny"]
    status, answer = ask(served(), "GET", "/v1beta/models?pageSize=50", headers=GOOGLE)
    assert status == 200 and [one["name"] for one in answer["models"]] == ["models/tiny"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
TEXTS = st.text() | st.sampled_from(["<|im_end|>", '"\\', "\x00", "\U0010ffff"])
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where each part of a body is."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, one in inner for place in places(one, (*at, key)))]


def changed(value: Any, place: tuple[Any, ...], put: Any) -> Any:
    if not place:
        return put
    copy = value.copy()
    copy[place[0]] = changed(value[place[0]], place[1:], put)
    return copy


def bodies(good: dict[str, Any]) -> st.SearchStrategy[bytes]:
    """A body with something else in one of its places, or no body at all."""
    put = st.tuples(st.sampled_from(places(good)), JSON | TEXTS)
    return put.map(lambda one: json.dumps(changed(good, *one)).encode()) | st.binary(max_size=40)


MESSAGES: dict[str, Any] = {
    "model": "tiny",
    "max_tokens": 50,
    "stream": False,
    "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": "Hello"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": sign("Hm.")},
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "a", "name": "weather", "input": {"city": "Trier"}},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "a", "content": "clear", "is_error": False}],
        },
    ],
    "tools": [{"name": "weather", "description": "Today's", "input_schema": SCHEMA}],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    "thinking": {"type": "adaptive"},
    "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
    "stop_sequences": ["END"],
    "temperature": 0.5,
    "top_p": 0.5,
    "top_k": 5,
    "metadata": {"user_id": "x"},
}
COUNTED = {name: MESSAGES[name] for name in ("model", "system", "messages", "tools", "tool_choice", "thinking")}
CONTENTS: dict[str, Any] = {
    "systemInstruction": {"parts": [{"text": "Be brief."}]},
    "contents": [
        {"role": "user", "parts": [{"text": "Hello"}]},
        {
            "role": "model",
            "parts": [
                {"text": "Hm.", "thought": True},
                {"functionCall": {"name": "weather", "args": {"city": "Trier"}}},
            ],
        },
        {"role": "user", "parts": [{"functionResponse": {"name": "weather", "response": {"output": "clear"}}}]},
    ],
    "tools": [{"functionDeclarations": [{"name": "weather", "description": "Today's", "parameters": SCHEMA}]}],
    "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["weather"]}},
    "generationConfig": {
        "temperature": 0.5,
        "topP": 0.5,
        "topK": 5,
        "candidateCount": 1,
        "maxOutputTokens": 50,
        "stopSequences": ["END"],
        "seed": 5,
        "presencePenalty": 0.5,
        "responseMimeType": "application/json",
        "responseSchema": {"type": "OBJECT", "properties": {"n": {"type": "INTEGER", "format": "int32"}}},
        "responseLogprobs": True,
        "logprobs": 2,
        "thinkingConfig": {"includeThoughts": True, "thinkingBudget": -1},
    },
    "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
}


@pytest.mark.parametrize(
    ("path", "body", "whose"),
    [
        ("/v1/messages", MESSAGES, "anthropic"),
        ("/v1/messages/count_tokens", COUNTED, "anthropic"),
        ("/v1beta/models/tiny:generateContent", CONTENTS, "google"),
        ("/v1beta/models/tiny:streamGenerateContent", CONTENTS, "google"),
        ("/v1beta/models/tiny:countTokens", {"generateContentRequest": CONTENTS}, "google"),
    ],
)
def test_whatever_is_sent_is_answered_in_the_providers_shape(path: str, body: dict[str, Any], whose: str) -> None:
    asked = served()
    assert ask(asked, "POST", path, json.dumps(body).encode())[0] == 200

    @given(bodies(body))
    @settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
    def fuzz(data: bytes) -> None:
        status, answer = ask(asked, "POST", path, data)
        assert status == 200 or (status in (400, 404) and shape(answer) == whose), answer

    fuzz()


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("/v1/chat/completions", "Authorization: Bearer KEY"),
        ("/v1/messages", "x-api-key: KEY"),
        ("/v1beta/models/tiny:generateContent", "x-goog-api-key: KEY"),
        ("/v1/models/tiny:generateContent", "x-goog-api-key: KEY"),
    ],
)
def test_who_sends_no_key_is_told_how_the_provider_s_clients_send_it(path: str, sent: str) -> None:
    asked = served(api_keys=("secret",))
    assert ask(asked, "POST", path)[1]["error"]["message"] == f"the API key is missing; send it as `{sent}`"
    wrong = ask(asked, "POST", path, headers={"x-api-key": "guess"})[1]["error"]
    assert wrong["message"] == "the API key is wrong; give one of those that the server was started with"
    if sent.startswith("Authorization"):
        assert wrong["code"] == "invalid_api_key"


@pytest.mark.parametrize(
    ("path", "allowed"), [("/v1/embeddings", "POST"), ("/v1/models/tiny", "GET, HEAD, POST"), ("/v1/messages", "POST")]
)
def test_another_method_is_refused_with_the_one_that_there_is(path: str, allowed: str) -> None:
    status, answer = ask(served(), "DELETE", path)
    assert status == 405
    assert answer["error"]["message"] == f"DELETE can't be done at {path}; there is {allowed}"
