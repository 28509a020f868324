"""A conversation that goes on after calls: each is answered, and made with arguments that can be read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.server.test_providers import ask, served
from tests.server.test_wrong_types import CHAT, RESPONSES, changed

USER = {"role": "user", "content": "And?"}


def told(path: str, body: dict[str, Any]) -> tuple[int, Any]:
    return ask(served(), "POST", f"/v1/{path}", json.dumps(body).encode())


@pytest.mark.parametrize(
    ("path", "field", "good"), [("chat/completions", "messages", CHAT), ("responses", "input", RESPONSES)]
)
def test_a_call_without_an_answer_right_after_it_is_refused(path: str, field: str, good: dict[str, Any]) -> None:
    given = good[field]
    assert told(path, good)[0] == 200
    for unanswered in ([*given[:-1]], [*given[:-1], USER], [*given[:-1], USER, given[-1]]):
        status, answer = told(path, good | {field: unanswered})
        assert (status, answer["error"]["param"]) == (400, field)
        assert "tool call a has no answer" in answer["error"]["message"]


@pytest.mark.parametrize(
    ("path", "good", "place"),
    [
        ("chat/completions", CHAT, ("messages", 2, "tool_calls", 0, "function", "arguments")),
        ("responses", RESPONSES, ("input", 3, "arguments")),
    ],
)
def test_arguments_that_are_no_json_are_refused(path: str, good: dict[str, Any], place: tuple[Any, ...]) -> None:
    status, answer = told(path, changed(good, place, "{bad"))
    assert (status, answer["error"]["message"]) == (400, "the arguments of the tool call a are no JSON")
    assert told(path, changed(good, place, ""))[0] == 200


@pytest.mark.parametrize(
    ("path", "field", "good", "place"),
    [
        ("chat/completions", "messages", CHAT, "messages[{}].tool_call_id"),
        ("responses", "input", RESPONSES, "input[{}].call_id"),
    ],
)
def test_an_answer_to_what_was_not_called_is_refused_whatever_the_template_has(
    path: str, field: str, good: dict[str, Any], place: str
) -> None:
    """The service here renders nothing, as a template without tools would take it."""
    given = good[field]
    answer, name = given[-1], place.rpartition(".")[2]
    for history, said in (
        ([answer], "no such call"),
        ([*given[:-1], answer | {name: "b"}], "no such call"),
        ([*given, USER, answer], "no such call"),
        ([*given, answer], "answered twice"),
    ):
        status, found = told(path, good | {field: history})
        assert (status, found["error"]["param"]) == (400, place.format(len(history) - 1)), found
        assert said in found["error"]["message"]
