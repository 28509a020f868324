"""A real model behind OpenAI's SDK: its texts, and what engines of others say of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import openai
import pytest

from pie_edge.server.openai import routes
from tests.conftest import oracle
from tests.server.host_service import Served, serving

MODEL = "smollm2-135m"


@pytest.fixture(scope="module")
def real(smollm2_path: Path) -> Iterator[tuple[openai.OpenAI, Served]]:
    with (
        serving(smollm2_path, routes) as served,
        openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client,
    ):
        yield client, served


Real = tuple[openai.OpenAI, Served]


def asking(text: str) -> Any:
    return [{"role": "user", "content": text}]


TOLERANCE = 0.3
"""Nats, between two engines that round a 4-bit model's sums differently."""
CASES = [case for case in oracle("smollm2-greedy") if case["min_gap"] > 0.015]
"""Where the best two are so near at no step that rounding might swap them."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["prompt"][:20])
def test_what_it_says_and_how_likely_that_is_agrees_with_an_independent_engine(
    real: Real, case: dict[str, Any]
) -> None:
    client, _ = real
    length = len(case["greedy_ids"])
    if case["chat"]:
        options: Any = {"temperature": 0, "max_tokens": length, "logprobs": True, "top_logprobs": 5}
        answer = client.chat.completions.create(model=MODEL, messages=asking(case["prompt"]), **options)
        assert answer.usage is not None and answer.usage.prompt_tokens == len(case["prompt_ids"])
        text, entries = answer.choices[0].message.content, (answer.choices[0].logprobs or Any).content or []
        tops = [[top.logprob for top in entry.top_logprobs] for entry in entries]
    else:
        found = client.completions.create(
            model=MODEL, prompt=case["prompt"], temperature=0, max_tokens=length, logprobs=5
        )
        assert found.usage is not None and found.usage.prompt_tokens == len(case["prompt_ids"])
        text, scores = found.choices[0].text, found.choices[0].logprobs
        assert scores is not None
        tops = [sorted(step.values(), reverse=True)[:5] for step in scores.top_logprobs or [] if step is not None]
    assert text == case["greedy_text"].removesuffix("<|im_end|>")
    for mine, step in zip(tops, case["steps"], strict=False):
        assert mine == pytest.approx(step["logprobs"], abs=TOLERANCE)


SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 30}, "people": {"type": "integer", "minimum": 0}},
    "required": ["city", "people"],
    "additionalProperties": False,
}


def test_an_answer_in_a_form_is_one_whatever_is_drawn(real: Real) -> None:
    client, _ = real
    form: Any = {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA, "strict": True}}
    answer = client.chat.completions.create(
        model=MODEL,
        messages=asking("Name a city and its population."),
        response_format=form,
        n=4,
        seed=1,
        max_tokens=120,
    )
    for choice in answer.choices:
        if choice.finish_reason == "stop":
            jsonschema.validate(json.loads(choice.message.content or ""), SCHEMA)
    assert sum(choice.finish_reason == "stop" for choice in answer.choices) >= 2


@pytest.mark.parametrize("logprobs", [False, True], ids=["forced-at-once", "one-by-one"])
def test_a_stop_string_ends_an_answer_in_a_form_wherever_tokens_are_cut(real: Real, logprobs: bool) -> None:
    client, _ = real
    schema = {"properties": {"name": {"const": "Mara"}, "kind": {"enum": ["abcd"]}}, "additionalProperties": False}
    form: Any = {"type": "json_schema", "json_schema": {"name": "one", "schema": schema | {"type": "object"}}}
    form["json_schema"]["schema"]["required"] = ["name", "kind"]
    whole = '{"name": "Mara", "kind": "abcd"}'
    for at in range(0, len(whole), 3):
        stop = whole[at : at + 2]
        answer = client.chat.completions.create(
            model=MODEL, messages=asking("Say."), response_format=form, stop=[stop], max_tokens=40, logprobs=logprobs
        )
        assert answer.choices[0].message.content == whole[: whole.index(stop)], stop
    response = client.responses.create(
        model=MODEL,
        input="Say.",
        text={"format": {"name": "one", "schema": schema | {"type": "object"}, "type": "json_schema"}},
    )
    assert response.status == "completed"


def test_streams_and_seeds_give_the_same_text_with_a_stop_string_in_it(real: Real) -> None:
    client, _ = real
    options: Any = {"seed": 11, "max_tokens": 60, "temperature": 0.9, "stop": [". ", ", and"]}
    messages = asking("Tell me about the sea.")
    whole = client.chat.completions.create(model=MODEL, messages=messages, **options).choices[0]
    parts = client.chat.completions.create(model=MODEL, messages=messages, stream=True, **options)
    assert "".join(part.choices[0].delta.content or "" for part in parts if part.choices) == whole.message.content
    assert whole.finish_reason == "stop"


def test_a_long_prefix_is_read_once_and_a_response_goes_on_from_all_of_it(real: Real) -> None:
    client, _ = real
    book = "It was a bright day in April, and the clocks were striking thirteen. " * 60
    used = []
    for question in ("Who?", "Where?"):
        answer = client.chat.completions.create(model=MODEL, messages=asking(f"{book}\n{question}"), max_tokens=1)
        assert answer.usage is not None and answer.usage.prompt_tokens_details is not None
        used.append((answer.usage.prompt_tokens, answer.usage.prompt_tokens_details.cached_tokens))
    (first, _), (second, cached) = used
    assert first > 900 and second - (cached or 0) < 48
    response = client.responses.create(model=MODEL, input="Name a colour.", max_output_tokens=8, temperature=0)
    after = client.responses.create(
        model=MODEL, input="Another?", previous_response_id=response.id, max_output_tokens=8
    )
    assert response.usage is not None and after.usage is not None
    assert after.usage.input_tokens_details.cached_tokens >= response.usage.total_tokens - 2


@pytest.mark.parametrize("streamed", [False, True])
def test_a_response_under_a_schema_is_kept_and_gone_on_from(real: Real, streamed: bool) -> None:
    client, _ = real
    schema = {"type": "object", "properties": {"city": {"enum": ["Paris", "Oslo"]}}, "required": ["city"]}
    schema["additionalProperties"] = False
    text: Any = {"format": {"type": "json_schema", "name": "place", "schema": schema}}
    asked: Any = {"model": MODEL, "input": "The capital of France?", "text": text, "temperature": 0}
    made = client.responses.create(**asked, stream=streamed)
    found = list(made)[-1].response if streamed else made
    assert found.status == "completed", found.error
    jsonschema.validate(json.loads(found.output_text), schema)
    after: Any = client.responses.create(model=MODEL, input="Why?", previous_response_id=found.id, max_output_tokens=3)
    assert after.usage.input_tokens_details.cached_tokens > found.usage.input_tokens
