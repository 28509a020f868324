"""Vectors of texts, as inferlets get them: of hidden states that a whole pass of the reference gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pie_edge.model import llama
from tests.host.hosting import Ended
from tests.host.tiny_hosting import run_tiny
from tests.support.oracle_run import Loaded, forwarded, whole_pass
from tests.support.tiny import SPEC, random_weights

SETTINGS = {"rows": 128}
HEAD = "from inferlet import embedding, errors, model\n\n"


def ran(body: str, **input: Any) -> Ended:
    return run_tiny(f"{HEAD}async def main(input):\n    {body}", input, settings=SETTINGS)


def vector(tokens: list[int], pooling: str) -> list[float]:
    ended = ran("return await embedding.embed(input['tokens'], pooling=input['how'])", tokens=tokens, how=pooling)
    assert ended.error is None, ended.traceback or ended.error
    return list(ended.result)


def unit(state: Any) -> Any:
    return state / np.linalg.norm(state)


@pytest.mark.parametrize("count", [1, 7, 64, 65, 150, 256])
def test_a_vector_is_pooled_from_what_the_logits_are_made_of(count: int) -> None:
    """The tiny model is tied: the embedding times a state is its logits, whatever the state was pooled from."""
    tokens, weights = [(7 * i + 3) % 64 for i in range(count)], random_weights()
    logits = forwarded(Loaded(SPEC, llama, weights), [whole_pass(tokens)])
    for pooling, rows in (("mean", logits.mean(axis=0)), ("last", logits[-1]), ("cls", logits[0])):
        found = np.asarray(vector(tokens, pooling))
        assert np.linalg.norm(found) == pytest.approx(1, abs=1e-6)
        np.testing.assert_allclose(unit(weights["embed"] @ found), unit(rows), atol=1e-5)


REFUSED = [
    ("await embedding.embed('')", "Unsupported", "doesn't declare how to pool.*setting pooling"),
    ("await embedding.embed([], pooling='mean')", "UsageError", "an empty text has no vector"),
    ("await embedding.embed([1], pooling='max')", "UsageError", "pooling is 'max'; give one of mean, last, cls"),
    ("await embedding.embed([1] * 257, pooling='last')", "ContextOverflow", "has 257 tokens, and tiny can read 256"),
    ("await embedding.embed([99], pooling='last')", "InvalidHandle", "99"),
]


@pytest.mark.parametrize(("call", "kind", "message"), REFUSED)
def test_what_has_no_vector_is_refused(call: str, kind: str, message: str) -> None:
    ended = ran(f"return {call}")
    assert ended.error is not None
    assert kind in str(ended.traceback or ended.error)
    with pytest.raises(type(ended.error), match=message):
        raise ended.error
