"""What a query says is honoured or refused; nothing in it is ignored."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.server.test_providers import ask, served, shape
from tests.server.test_wrong_types import BODIES


def asked(path: str, body: Any) -> tuple[int, Any]:
    return ask(served(), "POST", path, json.dumps(body).encode())


@pytest.mark.parametrize("path", BODIES)
def test_a_query_that_nobody_knows_is_refused_by_its_name(path: str) -> None:
    whose, good = BODIES[path]
    assert asked(f"{path}?key=any", good)[0] == 200
    status, answer = asked(f"{path}?strange=1", good)
    assert (status, shape(answer)) == (400, whose) and "'strange'" in answer["error"]["message"]
    if whose == "openai":
        assert (answer["error"]["param"], answer["error"]["code"]) == ("strange", "unknown_parameter")


def test_reading_takes_no_strange_query_either() -> None:
    for path in ("/v1/models", "/v1/responses/resp_x", "/v1/responses/resp_x/input_items"):
        status, answer = ask(served(), "GET", f"{path}?limit=1")
        assert (status, answer["error"]["param"]) == (400, "limit")


def test_what_anthropic_s_sdk_says_of_its_beta_is_taken() -> None:
    for path in ("/v1/messages", "/v1/messages/count_tokens"):
        assert asked(f"{path}?beta=true", BODIES[path][1])[0] == 200


@pytest.mark.parametrize("method", ["generateContent", "countTokens", "embedContent", "batchEmbedContents"])
def test_events_are_refused_where_there_are_none(method: str) -> None:
    content: dict[str, Any] = {"parts": [{"text": "x"}]}
    bodies: dict[str, Any] = {
        "embedContent": {"content": content},
        "batchEmbedContents": {"requests": [{"content": content}]},
    }
    body = bodies.get(method, {"contents": [content]})
    for name in ("alt", "$alt"):
        path = f"/v1beta/models/tiny:{method}?{name}="
        assert asked(f"{path}json", body)[0] == 200
        status, answer = asked(f"{path}sse", body)
        assert status == 400 and "alt=sse is for streamGenerateContent" in answer["error"]["message"]
