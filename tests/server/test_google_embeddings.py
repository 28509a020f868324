"""Google's batches of embeddings: what is wrong is told by the request that it is of."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from pie_edge.config import ServeSettings
from pie_edge.errors import ContextOverflow
from pie_edge.server import app
from tests.server.test_providers import ask
from tests.server.told import CARD, Told


class Embedding(Told):
    async def embed(self, texts: Any, dimensions: int | None = None) -> Any:
        for number, text in enumerate(texts):
            if text == "long":
                raise ContextOverflow("too long", 513, 512, number)
            if text == "endless":
                raise ContextOverflow("too long for the tokenizer", part=number)
        return await super().embed(texts, dimensions)


def told(method: str, body: dict[str, Any]) -> tuple[int, Any]:
    service = Embedding(card=replace(CARD, embeds=True, hidden=4))
    asked = app.build(service, ServeSettings(), []).asgi
    return ask(asked, "POST", f"/v1beta/models/tiny:{method}", json.dumps(body).encode())


def content(text: str) -> dict[str, Any]:
    return {"content": {"parts": [{"text": text}]}}


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        (content(""), "content: vectors are of text"),
        (content("long"), "content: The input token count (513)"),
        (content("endless"), "content: too long for the tokenizer"),
        (content("x") | {"model": "models/other"}, "model: 'models/other' isn't here"),
        (content("x") | {"outputDimensionality": 5}, "outputDimensionality is 5; vectors of tiny have 4"),
    ],
)
def test_what_is_wrong_with_one_of_a_batch_is_told_by_its_place(wrong: dict[str, Any], place: str) -> None:
    for method, body, before in (
        ("embedContent", wrong, ""),
        ("batchEmbedContents", {"requests": [content("x"), wrong]}, "requests[1]."),
    ):
        status, answer = told(method, body)
        assert status == (404 if "other" in place else 400)
        assert answer["error"]["message"].startswith(before + place), answer


def test_requests_of_different_sizes_are_refused_with_both() -> None:
    sized = content("x") | {"outputDimensionality": 2}
    status, answer = told("batchEmbedContents", {"requests": [sized, content("x")]})
    assert status == 400
    assert answer["error"]["message"].startswith(
        "requests[1].outputDimensionality: it is left out, and 2 in requests[0]"
    )
    assert told("batchEmbedContents", {"requests": [sized, sized]})[0] == 200


def test_a_size_that_is_given_twice_is_told_as_that() -> None:
    status, answer = told("embedContent", content("x") | {"outputDimensionality": 2, "output_dimensionality": 3})
    assert status == 400 and "output_dimensionality: it is given twice" in answer["error"]["message"]
