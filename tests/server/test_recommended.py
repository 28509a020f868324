"""Requests that leave sampling open are sampled as the checkpoint recommends, unless a setting has that off."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

from pie_edge.server.openai import routes
from tests.server.host_service import Served, serving
from tests.server.openai_serving import MODEL, scripted
from tests.support.scripted import Scripted

__all__ = ["scripted"]


@contextmanager
def answering(folder: Path, **settings: Any) -> Iterator[tuple[openai.OpenAI, Served]]:
    with (
        serving(folder, routes, **settings) as served,
        openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client,
    ):
        yield client, served


@pytest.fixture(scope="module")
def folder(scripted: tuple[Scripted, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripted model, which recommends what makes it always say the same."""
    found = tmp_path_factory.mktemp("recommending") / MODEL
    shutil.copytree(scripted[1], found)
    stated = {"top_k": 1, "temperature": 0.5, "eos_token_id": [2, scripted[0].id("b")], "max_new_tokens": 3}
    (found / "generation_config.json").write_text(json.dumps(stated), encoding="utf-8")
    return found


def texts(client: openai.OpenAI, **options: Any) -> set[str]:
    """Of several draws, after a text whose continuation is random letters."""
    given = {"model": MODEL, "prompt": "a", "max_tokens": 8, **options}
    return {client.completions.create(**given, seed=seed).choices[0].text for seed in range(4)}


def test_what_a_request_leaves_open_is_as_the_checkpoint_recommends(folder: Path) -> None:
    with answering(folder) as (client, served):
        assert served.service.card.sampling == {"temperature": 0.5, "top_k": 1}
        assert len(texts(client)) == 1
        # What it says holds, and the rest is still as recommended.
        assert len(texts(client, temperature=1.5)) == 1
        assert len(texts(client, extra_body={"top_k": 0}, temperature=1.5)) > 1
        response = client.responses.create(model=MODEL, input="hi", max_output_tokens=2)
        assert (response.temperature, response.top_p) == (0.5, 1.0)


def test_a_setting_has_it_off(folder: Path) -> None:
    with answering(folder, generation_config=False) as (client, served):
        assert served.service.card.sampling == {}
        assert len(texts(client, temperature=1.5)) > 1


def test_each_of_the_tokens_that_it_lists_ends_an_answer(scripted: tuple[Scripted, Path], folder: Path) -> None:
    """They are no matter of sampling: with the setting off, too."""
    made = scripted[0]
    bias = {made.id("b"): 100}
    with answering(folder, generation_config=False) as (client, _):
        answer = client.completions.create(model=MODEL, prompt="a", max_tokens=8, logit_bias=bias)  # type: ignore[arg-type]
        assert (answer.choices[0].finish_reason, answer.choices[0].text) == ("stop", "")
    with answering(scripted[1]) as (client, _):
        answer = client.completions.create(model=MODEL, prompt="a", max_tokens=8, logit_bias=bias)  # type: ignore[arg-type]
        assert (answer.choices[0].finish_reason, answer.choices[0].text) == ("length", "b" * 8)
