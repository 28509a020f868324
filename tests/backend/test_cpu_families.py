"""Every family on the cpu backend: the same greedy tokens as ``transformers``, and its logits within the stated tolerance."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pie_edge.backends.cpu.backend import open_cpu
from tests.backend.device import LoadedModel
from tests.support import family_oracle
from tests.support.family_oracle import CASES
from tests.support.mixture_checkpoints import is_packed
from tests.support.oracle_run import part_pass, whole_pass

TOLERANCE = 1e-4
"""Where the weights are float32: the cpu backend keeps everything else so."""
QUANTISED = 2e-3
"""Where they are codes: what meets them is rounded to 16 bits."""


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.mark.parametrize(("name", "container"), CASES)
def test_a_family_says_what_transformers_says(name: str, container: str, loop: asyncio.Runner, tmp_path: Path) -> None:
    oracle = family_oracle.read(name)

    async def logits() -> tuple[np.ndarray, np.ndarray]:
        backend = await open_cpu(threads=1)
        model = await LoadedModel.from_file(backend, oracle.write(tmp_path, container), oracle.context)
        tokens = oracle.tokens
        whole = await model.logits(whole_pass(tokens))
        last = await model.logits(
            whole_pass(tokens[:20]), part_pass(tokens[:-1], 20), part_pass(tokens, len(tokens) - 1)
        )
        await backend.close()
        return whole, last

    whole, last = loop.run(logits())
    tolerance = QUANTISED if is_packed(oracle.config) else TOLERANCE
    np.testing.assert_allclose(whole, oracle.logits, rtol=0, atol=tolerance)
    np.testing.assert_allclose(last, oracle.logits[-1:], rtol=0, atol=tolerance)
    assert whole[len(oracle.prompt) - 1 :].argmax(axis=-1).tolist() == oracle.greedy
