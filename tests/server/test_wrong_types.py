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
