"""lm-evaluation-harness against ``/v1/completions``: the requests that its ``local-completions`` makes, and what it reads of the
answers, which has to be what ``transformers`` computes in float32 on the dequantised weights.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from pie_edge.server.openai import routes
from tests.conftest import DATA
from tests.server.host_service import Served, serving

ORACLE: list[dict[str, Any]] = json.loads((DATA / "harness.json").read_text(encoding="utf-8"))
"""Answers of questions with several: all tokens, how many of them are the question's, and the others' log probability."""
TOLERANCE = 5e-3
"""The cpu backend keeps keys and values in half precision."""


@pytest.fixture(scope="module")
def served(smollm2_path: Path) -> Iterator[Served]:
    with serving(smollm2_path, routes) as found:
        yield found


def complete(served: Served, **body: Any) -> list[dict[str, Any]]:
    """The choices in the order of their prompts."""
    data = json.dumps({"model": "smollm2-135m", "seed": 1234, "temperature": 0, **body}).encode()
    with urlopen(Request(f"{served.url}/v1/completions", data, {"content-type": "application/json"})) as response:
        choices: list[dict[str, Any]] = json.loads(response.read())["choices"]
    return sorted(choices, key=lambda choice: int(choice["index"]))


def scored(served: Served, prompt: Any) -> list[dict[str, Any]]:
    """``logprobs`` of each choice: one token is made, since many servers refuse to make none."""
    choices = complete(served, prompt=prompt, max_tokens=1, logprobs=1, echo=True)
    return [dict(choice["logprobs"]) for choice in choices]


def is_greedy(found: dict[str, Any], first: int) -> bool:
    """As it decides that: by the numbers alone."""
    pairs = zip(found["token_logprobs"][first:-1], found["top_logprobs"][first:-1], strict=True)
    return all(own == max(top.values()) for own, top in pairs)


def test_answers_are_scored_as_by_transformers(served: Served) -> None:
    prompts = [case["tokens"] for case in ORACLE]
    batch = scored(served, prompts)
    for case, found in zip(ORACLE, batch, strict=True):
        assert len(found["token_logprobs"]) == len(case["tokens"]) + 1
        assert found["token_logprobs"][0] is None
        total = sum(found["token_logprobs"][case["context_tokens"] : -1])
        assert total == pytest.approx(case["logprob"], abs=TOLERANCE)
        assert is_greedy(found, case["context_tokens"]) == case["greedy"]


def test_a_prompt_by_itself_is_scored_as_among_others(served: Served) -> None:
    alone, among = scored(served, [ORACLE[0]["tokens"]])[0], scored(served, [case["tokens"] for case in ORACLE[:3]])[0]
    assert alone["token_logprobs"] == pytest.approx(among["token_logprobs"], abs=TOLERANCE)


def test_what_the_model_makes_itself_counts_as_greedy(served: Served) -> None:
    tokens = ORACLE[0]["tokens"]
    text = complete(served, prompt=[tokens], max_tokens=4)[0]["text"]
    made = scored(served, "The sea is" + complete(served, prompt="The sea is", max_tokens=4)[0]["text"])[0]
    assert text and is_greedy(made, len(scored(served, "The sea is")[0]["tokens"]) - 1)


def test_tasks_that_generate_get_text_up_to_a_stop(served: Served) -> None:
    whole = complete(served, prompt=["The sea is"], max_tokens=8)[0]["text"]
    cut = complete(served, prompt=["The sea is"], max_tokens=8, stop=["endless", "\n\n"])[0]
    assert (cut["text"], cut["finish_reason"]) == (whole.partition("endless")[0], "stop")
