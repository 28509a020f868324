"""The real models on the cpu backend: exact mode against the oracle, the default arithmetic against exact mode.

SmolLM2's oracle engine held its weights in bfloat16, so the exact mode gets them so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pie_edge.backends.cpu.backend import open_cpu
from tests.backend.device import LoadedModel
from tests.backend.models_on_device import label, log_probabilities, rounded
from tests.conftest import oracle
from tests.support.oracle_run import PAGE, largest_error, load, whole_pass

EXACT_TOLERANCE = 2e-4
DEFAULT_TOLERANCE = 0.02
"""The largest error of a log probability that the default arithmetic promises (decision 005)."""


@contextmanager
def from_file(path: Path, *, exact: bool) -> Iterator[LoadedModel]:
    async def opened() -> LoadedModel:
        return await LoadedModel.from_file(await open_cpu(exact=exact), path)

    model = asyncio.run(opened())
    yield model
    asyncio.run(model.backend.close())


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path) -> Iterator[LoadedModel]:
    with from_file(smollm2_path, exact=False) as model:
        yield model


@pytest.fixture(scope="module")
def exact_smollm2(smollm2_path: Path) -> Iterator[LoadedModel]:
    with from_file(smollm2_path, exact=True) as model:
        yield model


@pytest.fixture(scope="module")
def gemma3(gemma3_path: Path) -> Iterator[LoadedModel]:
    with from_file(gemma3_path, exact=False) as model:
        yield model


@pytest.fixture(scope="module")
def rounded_smollm2(smollm2_path: Path) -> Iterator[LoadedModel]:
    async def opened() -> LoadedModel:
        held = load(smollm2_path)
        sources = {name: rounded(values) for name, values in held.weights.items()}
        backend = await open_cpu(exact=True)
        return await LoadedModel.load(backend, held.spec, held.family, {n: (s.target, s) for n, s in sources.items()})

    model = asyncio.run(opened())
    yield model
    asyncio.run(model.backend.close())


@pytest.mark.parametrize("case", oracle("smollm2-greedy"), ids=label)
def test_smollm2_in_exact_mode_reproduces_the_oracle(rounded_smollm2: LoadedModel, case: dict[str, Any]) -> None:
    found = log_probabilities(rounded_smollm2, case)
    assert found.argmax(axis=-1).tolist() == case["greedy_ids"]
    assert largest_error(case, found) < EXACT_TOLERANCE


SHORT = [case for case in oracle("smollm2-greedy") if len(case["prompt_ids"]) < 100]


@pytest.mark.parametrize("case", SHORT, ids=label)
def test_smollm2_by_default_is_as_close_to_exact_mode_as_promised(
    smollm2: LoadedModel, exact_smollm2: LoadedModel, case: dict[str, Any]
) -> None:
    found, exact = log_probabilities(smollm2, case), log_probabilities(exact_smollm2, case)
    best = np.argsort(exact, axis=-1)[:, -5:]
    assert np.abs(np.take_along_axis(found - exact, best, axis=-1)).max() < DEFAULT_TOLERANCE
    chosen = np.take_along_axis(exact, found.argmax(axis=-1)[:, None], axis=-1)[:, 0]
    assert (exact.max(axis=-1) - chosen).max() < DEFAULT_TOLERANCE


@pytest.mark.parametrize("case", oracle("gemma3-greedy"), ids=label)
def test_gemma3_by_default_reproduces_the_oracle(gemma3: LoadedModel, case: dict[str, Any]) -> None:
    found = log_probabilities(gemma3, case)
    assert found.argmax(axis=-1).tolist() == case["greedy_ids"]
    assert largest_error(case, found) < DEFAULT_TOLERANCE


@pytest.mark.parametrize("first", [1, 17, 44])
def test_a_row_has_the_same_bits_however_its_past_was_forwarded(smollm2: LoadedModel, first: int) -> None:
    tokens = max((case["prompt_ids"] for case in oracle("smollm2-greedy")), key=len)[:45]
    whole = replace(whole_pass(tokens), sample_rows=[44], draw_keys=[0, 0])
    head = replace(whole_pass(tokens[:first]), sample_rows=[0], draw_keys=[0, 0])
    rest = len(tokens) - first
    tail = replace(
        whole,
        **{name: getattr(whole, name)[first:] for name in ("token_src", "positions", "row_index", "write_slots")},
        query_starts=[0, rest],
        fresh_bits=[sum(1 << s for s in range(PAGE) if first <= i * PAGE + s < len(tokens)) for i in range(3)],
        sample_rows=[rest - 1],
    )
    together = asyncio.run(smollm2.logits(whole))
    apart = asyncio.run(smollm2.logits(head, tail))
    assert apart.tobytes() == together.tobytes()
