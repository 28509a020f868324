"""What is too long to be read at all is the client's to mend, at every endpoint."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Route

from pie_edge.errors import InferletFailed, ResourceError
from pie_edge.server import anthropic, google, models, openai
from pie_edge.server.failures import failure
from pie_edge.server.generation import Service
from tests.server.host_service import serving
from tests.server.openai_serving import MODEL, scripted
from tests.support.scripted import Scripted

__all__ = ["scripted"]

TEXT = "well " * 300_000
"""More characters than the host makes tokens of at once, which are 1,048,576."""
MESSAGES = [{"role": "user", "content": TEXT}]
CONTENTS = [{"parts": [{"text": TEXT}]}]
OPENAI: dict[str, dict[str, Any]] = {
    "chat/completions": {"model": MODEL, "messages": MESSAGES},
    "completions": {"model": MODEL, "prompt": TEXT},
    "responses": {"model": MODEL, "input": TEXT},
}


def every_route(service: Service) -> Sequence[Route]:
    return [*anthropic.routes(service), *google.routes(service), *openai.routes(service)]


@pytest.fixture(scope="module")
def url(scripted: tuple[Scripted, Path]) -> Iterator[str]:
    with serving(scripted[1], every_route) as served:
        yield served.url


def refused(url: str, body: dict[str, Any], why: str = "15000") -> dict[str, Any]:
    asked = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(asked, timeout=60)
    assert caught.value.code == 400
    error: dict[str, Any] = json.loads(caught.value.read())["error"]
    assert why in error["message"] and "at once" not in error["message"]
    return error


@pytest.mark.parametrize("path", OPENAI)
def test_openai_s_clients_are_told_that_the_context_is_exceeded(url: str, path: str) -> None:
    error = refused(f"{url}/v1/{path}", OPENAI[path])
    assert (error["type"], error["code"]) == ("invalid_request_error", "context_length_exceeded")


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
def test_anthropic_s_clients_are_told_that_the_prompt_is_too_long(url: str, path: str) -> None:
    body = {"model": MODEL, "messages": MESSAGES}
    error = refused(f"{url}{path}", body if path.endswith("count_tokens") else body | {"max_tokens": 5})
    assert error["type"] == "invalid_request_error"
    # Each letter is a token, and a role is four.
    assert error["message"].startswith("prompt is too long: 1500004 tokens > ")


@pytest.mark.parametrize("method", ["generateContent", "streamGenerateContent", "countTokens"])
def test_google_s_clients_are_told_that_their_argument_is_invalid(url: str, method: str) -> None:
    error = refused(f"{url}/v1beta/models/{MODEL}:{method}", {"contents": CONTENTS})
    assert error["status"] == "INVALID_ARGUMENT"


def test_tokens_beyond_the_context_are_counted(url: str) -> None:
    body = {"model": MODEL, "prompt": [5] * 2_000_000}
    assert refused(f"{url}/v1/completions", body, "2000000 tokens")["code"] == "context_length_exceeded"


@pytest.fixture(scope="module")
def few(scripted: tuple[Scripted, Path]) -> Iterator[str]:
    """Of a server with fewer pages than the model's context has."""
    with serving(
        scripted[1], lambda service: [*models.routes(service), *every_route(service)], kv_memory=80 * 4096
    ) as served:
        yield served.url


def told(url: str, **headers: str) -> Any:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60) as answer:
        return json.loads(answer.read())


def test_no_more_context_is_advertised_than_the_pages_hold(few: str) -> None:
    held = told(f"{few}/v1/models")["data"][0]["max_model_len"]
    assert held % 16 == 0 and 0 < held < 80 * 16
    assert told(f"{few}/v1beta/models/{MODEL}")["inputTokenLimit"] == held
    found = told(f"{few}/v1/models/{MODEL}", **{"anthropic-version": "2023-06-01"})
    assert found["max_input_tokens"] == held


def test_what_all_pages_can_t_hold_is_refused_for_good_with_both_counts(few: str) -> None:
    held = told(f"{few}/v1/models")["data"][0]["max_model_len"]
    error = refused(f"{few}/v1/completions", {"model": MODEL, "prompt": [5] * (held + 1)}, f"length is {held} tokens")
    assert error["code"] == "context_length_exceeded" and f"{held + 1} tokens" in error["message"]
    said = {"messages": [{"role": "user", "content": "well " * held}]}
    error = refused(f"{few}/v1/messages", {"model": MODEL, "max_tokens": 5, **said}, f"tokens > {held} maximum")
    assert error["message"].startswith("prompt is too long")
    contents = [{"parts": [{"text": "well " * held}]}]
    error = refused(f"{few}/v1beta/models/{MODEL}:generateContent", {"contents": contents}, f"allowed ({held})")
    assert error["status"] == "INVALID_ARGUMENT"


def test_a_prompt_that_takes_all_pages_there_are_is_answered(few: str) -> None:
    held = told(f"{few}/v1/models")["data"][0]["max_model_len"]
    for length, generated in ((held, 1), (held - 1, 2)):
        body = {"model": MODEL, "prompt": [5] * length, "max_tokens": 40, "ignore_eos": True}
        data = json.dumps(body).encode()
        asked = urllib.request.Request(f"{few}/v1/completions", data, {"content-type": "application/json"})
        with urllib.request.urlopen(asked, timeout=60) as answer:
            found = json.loads(answer.read())
        assert found["usage"]["prompt_tokens"] == length
        assert found["choices"][0]["finish_reason"] == "length" and found["usage"]["completion_tokens"] == generated


def test_what_an_inferlet_can_t_have_is_no_fault_of_the_server_s() -> None:
    for error in (ResourceError("too much"), InferletFailed("too much", cause="resource")):
        assert (failure(error).status, failure(error).kind) == (400, "invalid")
