"""Embeddings, asked by OpenAI's and Google's own SDKs, of a tiny model that says how it pools; the oracle is transformers."""

from __future__ import annotations

import base64
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
from google import genai
from google.genai import errors as google_errors
from google.genai import types

from pie_edge.server import google, models
from pie_edge.server import openai as openai_api
from pie_edge.server.generation import Service
from tests.server.host_service import Served, serving
from tests.support import embedding_model
from tests.support.embedding_model import NAME, TEXTS, WIDTH, expected
from tests.support.family_checkpoints import make_weights, write_gguf

FULL = [text for text in TEXTS if text]


def routes(service: Service) -> list[Any]:
    return [*models.routes(service), *google.routes(service), *openai_api.routes(service)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return embedding_model.write(tmp_path_factory.mktemp("models") / NAME)


@contextmanager
def asked(folder: Path, **settings: Any) -> Iterator[tuple[openai.OpenAI, Served]]:
    with (
        serving(folder, routes, **settings) as served,
        openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client,
    ):
        yield client, served


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Served]:
    with serving(folder, routes) as found:
        yield found


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def vectors(client: openai.OpenAI, input: Any, **options: Any) -> list[Any]:
    found = client.embeddings.create(model=NAME, input=input, **options)
    assert [one.index for one in found.data] == list(range(len(found.data)))
    return [np.asarray(one.embedding) for one in found.data]


def full(pooling: str) -> list[Any]:
    return [vector for text, vector in zip(TEXTS, expected(pooling), strict=True) if text]


def test_texts_have_the_vectors_of_transformers(client: openai.OpenAI) -> None:
    for found in (vectors(client, FULL), [vectors(client, text)[0] for text in FULL]):
        for vector, wanted in zip(found, full("last"), strict=True):
            assert vector.shape == (WIDTH,)
            np.testing.assert_allclose(vector, wanted, atol=2e-5)
            assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-6)


def test_floats_and_base64_are_the_same_and_tokens_are_taken_as_they_are(client: openai.OpenAI) -> None:
    ids = [embedding_model.tokenizer().encode(text).ids for text in TEXTS]
    plain = vectors(client, FULL, encoding_format="float")
    packed: list[Any] = [
        one.embedding for one in client.embeddings.create(model=NAME, input=FULL, encoding_format="base64").data
    ]
    for one, other in zip(plain, packed, strict=True):
        np.testing.assert_array_equal(one.astype(np.float32), np.frombuffer(base64.b64decode(other), "<f4"))
    for vector, wanted in zip(vectors(client, ids), expected("last"), strict=True):
        np.testing.assert_allclose(vector, wanted, atol=2e-5)
    np.testing.assert_array_equal(vectors(client, ids[1])[0], vectors(client, FULL[1])[0])
    used = client.embeddings.create(model=NAME, input=FULL).usage
    assert (
        used.prompt_tokens == used.total_tokens == sum(len(one) for one, text in zip(ids, TEXTS, strict=True) if text)
    )


def test_a_shorter_vector_is_the_beginning_of_the_whole_one(client: openai.OpenAI) -> None:
    (whole,), (short,) = vectors(client, "Apples fall."), vectors(client, "Apples fall.", dimensions=5)
    np.testing.assert_allclose(short, whole[:5] / np.linalg.norm(whole[:5]), atol=1e-6)
    np.testing.assert_allclose(vectors(client, "Apples fall.", dimensions=WIDTH)[0], whole, atol=1e-6)


REFUSED: list[tuple[dict[str, Any], str, str | None]] = [
    ({"input": ""}, "at least 1", "input"),
    ({"input": []}, "at least 1", "input"),
    ({"input": ["a", ""]}, "at least 1", "input[1]"),
    ({"input": [[]]}, "at least 1", "input[0]"),
    ({"input": ["a"] * 2049}, "at most 2048", "input"),
    ({"input": "a", "dimensions": WIDTH + 1}, f"vectors of {NAME} have {WIDTH}", "dimensions"),
    ({"input": "a", "dimensions": 0}, "greater than or equal to 1", "dimensions"),
    ({"input": "a", "model": "other"}, "does not exist", "model"),
    ({"input": [[1], [1, 9999]]}, r"input\[1\]\[1\] is 9999; ids", "input[1][1]"),
    ({"input": [9999]}, "9999", "input[0]"),
]


@pytest.mark.parametrize(("body", "message", "param"), REFUSED)
def test_what_has_no_vector_is_refused(
    client: openai.OpenAI, body: dict[str, Any], message: str, param: str | None
) -> None:
    with pytest.raises(openai.APIStatusError, match=message) as refused:
        client.embeddings.create(**{"model": NAME, **body})
    assert refused.value.status_code == (404 if param == "model" else 400)
    assert refused.value.body["param"] == param  # type: ignore[index]


def test_a_text_beyond_the_context_is_refused_with_both_numbers(served: Served, client: openai.OpenAI) -> None:
    limit = served.service.card.context
    assert len(vectors(client, [[1] * limit])) == 1
    long = [1] * (limit + 1)
    for given, place in ((long, "input"), ([[1], long], "input[1]")):
        told = f"{limit} tokens.*your {re.escape(place)} resulted in {limit + 1} tokens. Please reduce its length"
        with pytest.raises(openai.BadRequestError, match=told) as refused:
            client.embeddings.create(model=NAME, input=given)
        assert (refused.value.code, refused.value.param) == ("context_length_exceeded", place)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_setting_says_how_to_pool(folder: Path, pooling: str) -> None:
    with asked(folder, pooling=pooling) as (client, served):
        for vector, wanted in zip(vectors(client, FULL), full(pooling), strict=True):
            np.testing.assert_allclose(vector, wanted, atol=2e-5)
        limit = served.service.card.context
        assert len(vectors(client, [[1] * limit])) == 1


def test_a_model_that_declares_nothing_is_refused_with_the_remedy(folder: Path, tmp_path: Path) -> None:
    plain = tmp_path / NAME
    shutil.copytree(folder, plain, ignore=shutil.ignore_patterns("modules.json", "1_Pooling"))
    with asked(plain) as (client, _):
        with pytest.raises(openai.BadRequestError, match="declare no pooling.*--pooling mean, last or cls"):
            client.embeddings.create(model=NAME, input="a")
        assert (
            client.completions.create(model=NAME, prompt="a", max_tokens=2, temperature=0).object == "text_completion"
        )


def test_a_model_whose_vectors_were_switched_off_says_by_what(folder: Path) -> None:
    with (
        asked(folder, pooling="none") as (client, _),
        pytest.raises(openai.BadRequestError, match="declare pooling by last: leave out --pooling none"),
    ):
        client.embeddings.create(model=NAME, input="a")


def test_a_gguf_file_says_it_in_a_number(tmp_path: Path) -> None:
    config = embedding_model.CONFIG
    path = write_gguf(tmp_path / f"{NAME}.gguf", config, make_weights(config), byte_tokens=True, pooling_type=1)
    ids = [embedding_model.tokenizer().encode(text).ids for text in FULL]
    with asked(path) as (client, _):
        for vector, wanted in zip(vectors(client, ids), full("mean"), strict=True):
            np.testing.assert_allclose(vector, wanted, atol=2e-5)


def test_a_conversation_with_a_model_that_has_no_template_is_refused_with_what_there_is(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="no chat template.*continue a text .*/v1/completions") as refused:
        client.chat.completions.create(model=NAME, messages=[{"role": "user", "content": "Hi"}])
    assert "model.encode" not in str(refused.value)


def test_google_s_sdk_has_the_same_vectors(served: Served) -> None:
    client = genai.Client(api_key="any", http_options=types.HttpOptions(base_url=served.url))
    found = client.models.embed_content(model=NAME, contents=FULL)  # type: ignore[arg-type]
    assert found.embeddings is not None
    for one, wanted in zip(found.embeddings, full("last"), strict=True):
        np.testing.assert_allclose(np.asarray(one.values), wanted, atol=2e-5)
    config = types.EmbedContentConfig(output_dimensionality=4, task_type="RETRIEVAL_QUERY")
    short = client.models.embed_content(model=NAME, contents="a", config=config)
    assert short.embeddings is not None and len(short.embeddings[0].values or []) == 4
    with pytest.raises(google_errors.ClientError, match=f"have {WIDTH}"):
        client.models.embed_content(
            model=NAME, contents="a", config=types.EmbedContentConfig(output_dimensionality=999)
        )
    assert "embedContent" in (client.models.get(model=NAME).supported_actions or [])
    client.close()
