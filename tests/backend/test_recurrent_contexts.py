"""A context of a hybrid model on the cpu backend, its tokens dealt out in any chunks and taken back: what one piece says."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pie_edge.backends.cpu.backend import open_cpu
from tests.backend.device import LoadedModel
from tests.support import family_oracle
from tests.support.oracle_run import TAIL, part_pass, whole_pass
from tests.support.recurrent_context import RecurrentContext

REVERSIBLE = TAIL - 3
Moves = list[tuple[int, int]]
Opened = tuple[asyncio.Runner, dict[str, LoadedModel]]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    async def load() -> dict[str, LoadedModel]:
        backend = await open_cpu(threads=1)
        found = {}
        for name in ("lfm2", "qwen3.5"):
            path = family_oracle.read(name).write(tmp_path_factory.mktemp(name), "safetensors")
            found[name] = await LoadedModel.from_file(backend, path)
        return found

    with asyncio.Runner() as runner:
        models = runner.run(load())
        yield runner, models
        runner.run(models["lfm2"].backend.close())


@pytest.mark.parametrize("name", ["lfm2", "qwen3.5"])
@settings(max_examples=12, deadline=None)
@given(moves=st.lists(st.tuples(st.integers(1, 20), st.integers(0, REVERSIBLE)), min_size=1, max_size=5))
def test_any_chunks_and_tokens_taken_back_end_as_one_piece_does(opened: Opened, name: str, moves: Moves) -> None:
    runner, models = opened
    context, tokens, steps = RecurrentContext(REVERSIBLE), [], []
    for count, back in moves:
        start = max(len(tokens) - back, context.folded)
        # Another token at every place each time.
        tokens = [
            *tokens[:start],
            *((31 * place + 7 * len(steps) + count) % 96 for place in range(start, start + count)),
        ]
        steps.append(context.step(part_pass(tokens, start)))
    found = runner.run(models[name].logits(*steps))
    whole = runner.run(models[name].logits(whole_pass(tokens)))[-len(found) :]
    # To the last bit: a token's sums are taken in the same order in any pass.
    np.testing.assert_array_equal(found, whole)
