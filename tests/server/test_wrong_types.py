"""A value of another type than the field's, at every place of every provider's body, is refused by the field's name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.server.test_providers import CONTENTS, COUNTED, MESSAGES, SCHEMA, ask, changed, places, served, shape

FUNCTION = {"name": "weather", "description": "Today's", "parameters": SCHEMA, "strict": True}
CHAT: dict[str, Any] = {
    "model": "tiny",
    "messages": [
        {"role": "system", "content": "Be brief.", "name": "x"},
        {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "weather", "arguments": "{}"}}],
        },
        {"role": "tool", "content": [{"type": "text", "text": "clear"}], "tool_call_id": "a"},
    ],
    "tools": [{"type": "function", "function": FUNCTION}],
    "tool_choice": {"type": "function", "function": {"name": "weather"}},
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
    "logit_bias": {"5": 1.0},
    "logprobs": True,
    "top_logprobs": 2,
    "max_tokens": 5,
    "n": 1,
    "seed": 5,
    "stop": ["END"],
    "stream": False,
    "metadata": {"a": "b"},
    "reasoning_effort": "none",
    "chat_template_kwargs": {"enable_thinking": False},
}
COMPLETIONS: dict[str, Any] = {
    "model": "tiny",
    "prompt": ["Hello"],
    "best_of": 1,
    "echo": False,
    "logprobs": 1,
    "stop": "END",
    "suffix": "",
    "min_p": 0.5,
    "top_k": 5,
}
RESPONSES: dict[str, Any] = {
    "model": "tiny",
    "instructions": "Be brief.",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}]},
        {"type": "function_call", "call_id": "a", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": [{"type": "input_text", "text": "clear"}]},
    ],
    "tools": [{"type": "function", **FUNCTION}],
    "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "weather"}]},
    "text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}, "verbosity": "medium"},
    "reasoning": {"effort": "none", "summary": "auto"},
    "include": ["message.output_text.logprobs"],
    "top_logprobs": 2,
    "metadata": {"a": "b"},
    "truncation": "auto",
    "stream": False,
    "store": True,
}
EMBEDDINGS: dict[str, Any] = {"model": "tiny", "input": ["Hello"], "encoding_format": "float"}
BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "/v1/chat/completions": ("openai", CHAT),
    "/v1/completions": ("openai", COMPLETIONS),
    "/v1/responses": ("openai", RESPONSES),
    "/v1/embeddings": ("openai", EMBEDDINGS),
    "/v1/messages": ("anthropic", MESSAGES),
    "/v1/messages/count_tokens": ("anthropic", COUNTED),
    "/v1beta/models/tiny:generateContent": ("google", CONTENTS),
    "/v1beta/models/tiny:countTokens": ("google", {"generateContentRequest": CONTENTS}),
}
OTHERS: tuple[Any, ...] = (None, True, 5, -0.5, 10**30, "", "x", [], [[]], [5], [None], {}, {"type": []}, {"type": {}})


@pytest.mark.parametrize("path", BODIES)
def test_another_type_at_any_place_is_refused(path: str) -> None:
    whose, good = BODIES[path]
    asked = served()
    assert ask(asked, "POST", path, json.dumps(good).encode())[0] == 200
    for place in places(good):
        for other in OTHERS:
            status, answer = ask(asked, "POST", path, json.dumps(changed(good, place, other)).encode())
            assert status == 200 or (status in (400, 404) and shape(answer) == whose), (place, other, answer)


@pytest.mark.parametrize("place", [("input", 0), ("input", 0, "content", 0), ("input", 4, "output", 0), ("tools", 0)])
@pytest.mark.parametrize("kind", [[], {}, [[]], None, 5])
def test_a_type_that_is_no_text_is_named(place: tuple[Any, ...], kind: Any) -> None:
    wrong = changed(RESPONSES, (*place, "type"), kind) if place != ("input", 0) else None
    if wrong is None:
        wrong = changed(RESPONSES, place, RESPONSES["input"][0] | {"type": kind})
    status, answer = ask(served(), "POST", "/v1/responses", json.dumps(wrong).encode())
    named = place[0] + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place[1:])
    assert (status, answer["error"]["param"]) == (400, f"{named}.type")


def refused(path: str, body: str, headers: dict[str, str] | None = None, status: int = 400) -> dict[str, Any]:
    got, answer = ask(served(), "POST", path, body.encode(), headers)
    assert got == status, answer
    error: dict[str, Any] = answer["error"]
    return error


CHATTING = '{"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], '
COMPLETING = '{"model": "tiny", '


@pytest.mark.parametrize(
    ("path", "body", "param", "said"),
    [
        ("chat/completions", CHATTING + '"stop": ["a"' + ', "b"' * 16 + "]}", "stop", "at most 16 items"),
        ("chat/completions", CHATTING + '"temperature": NaN}', "temperature", "finite"),
        ("chat/completions", CHATTING + '"metadata": {"a": "b", "a": "c"}}', "a", "comes twice"),
        ("chat/completions", CHATTING + '"n": 1, "n": 2}', "n", "comes twice"),
        ("chat/completions", CHATTING + '"logit_bias": {"5": 1, "05": 2}}', "logit_bias", "names '05'"),
        ("chat/completions", CHATTING + f'"top_k": {10**30}}}', "top_k", "less than 2147483648"),
        ("chat/completions", "null", None, "the body"),
        ("chat/completions", CHATTING.replace("tiny", "other") + '"n": 1}', "model", "does not exist"),
        ("completions", COMPLETING + '"prompt": ["a", [5, 6]]}', "prompt[1]", "a valid string"),
        ("chat/completions", CHATTING + '"logit_bias": {"5": 101}}', "logit_bias.5", "equal to 100, and 101 was given"),
        (
            "chat/completions",
            CHATTING + '"logit_bias": {"5": null}}',
            "logit_bias.5",
            "a valid number, and null was given",
        ),
        ("chat/completions", CHATTING + f'"logit_bias": {{"{"9" * 5000}": 1}}}}', "logit_bias", "it takes token ids"),
        ("chat/completions", CHATTING + '"response_format": {}}', "response_format.type", "Missing required parameter"),
        ("chat/completions", CHATTING + '"response_format": {"type": 5}}', "response_format.type", "and 5 was given"),
        ("chat/completions", CHATTING + '"response_format": 5}', "response_format", "object"),
        ("chat/completions", CHATTING + '"stop": 5}', "stop", "a valid string or a valid array, and 5 was given"),
        ("embeddings", COMPLETING + '"input": 5}', "input", "a valid string or a valid array, and 5 was given"),
        (
            *("embeddings", COMPLETING + '"input": [1.5]}', "input[0]"),
            "a valid integer or a valid string or a valid array, and 1.5 was given",
        ),
        ("responses", COMPLETING + '"input": [{"role": "user", "content": [[]]}]}', "input[0].content[0]", "an object"),
        (
            "responses",
            COMPLETING + '"input": [{"role": "user", "content": [{}]}]}',
            "input[0].content[0].type",
            "Missing",
        ),
        ("completions", COMPLETING + '"prompt": []}', "prompt", "at least 1 item"),
        ("completions", COMPLETING + '"prompt": [5, -1]}', "prompt[1]", "greater than or equal to 0"),
        ("completions", COMPLETING + f'"prompt": {json.dumps(["a"] * 1025)}}}', "prompt", "at most 1024 items"),
    ],
)
def test_what_is_wrong_is_said_of_the_field_that_it_is_of(path: str, body: str, param: str | None, said: str) -> None:
    error = refused(f"/v1/{path}", body, status=404 if param == "model" else 400)
    assert error["param"] == param
    assert said in error["message"], error


@pytest.mark.parametrize("path", BODIES)
def test_a_name_that_comes_twice_and_an_encoded_body_are_refused_by_everyone(path: str) -> None:
    good = json.dumps(BODIES[path][1])
    twice = "{" + f'"{next(iter(BODIES[path][1]))}": 1, ' + good[1:]
    assert refused(path, twice)["message"]
    assert "'gzip'" in refused(path, good, {"content-encoding": "gzip"}, 415)["message"]
    assert ask(served(), "POST", path, good.encode(), {"content-encoding": "identity"})[0] == 200


@pytest.mark.parametrize("path", ["/v1/chat/completions/", "/v1/messages/", "/v1beta/models/"])
def test_a_slash_too_many_is_another_path(path: str) -> None:
    status, answer = ask(served(), "GET" if "beta" in path else "POST", path, b"{}")
    assert status == 404 and shape(answer) != "none", (status, answer)


def test_nothing_to_count_is_refused() -> None:
    error = refused("/v1beta/models/tiny:countTokens", '{"contents": []}')
    assert "contents" in error["message"] and "at least 1 item" in error["message"]


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("name", ["a b", 'x"y', "a\nb", "é\n", "int", "Model", "list[str]", "$ref"])
def test_an_unknown_field_is_named_whatever_its_name(path: str, name: str) -> None:
    whose, good = BODIES[path]
    error = refused(path, json.dumps(good | {name: 1}))
    assert (name if name.isprintable() else repr(name)[1:-1]) in error["message"], error
    if whose == "openai":
        assert error["param"] == name


def test_a_value_is_placed_under_the_name_that_it_has() -> None:
    body = '{"model": "tiny", "input": "x", "metadata": {"a b": 1}}'
    assert refused("/v1/responses", body)["param"] == "metadata.a b"


def test_a_field_under_both_of_its_names_is_given_twice() -> None:
    contents = '{"contents": [{"parts": [{"text": "x"}]}], "generationConfig": {'
    error = refused("/v1beta/models/tiny:generateContent", contents + '"topK": 4, "top_k": 5}}')
    assert "given twice" in error["message"] and "no such field" not in error["message"]
    strange = refused("/v1beta/models/tiny:generateContent", contents + '"top_x": 4, "topK": 5}}')
    assert strange["message"].endswith("top_x: there is no such field here")
