"""The real models on any device, against the oracle: in exact mode, and as users have them. A test module of each backend takes
these tests in, and says in a fixture ``open_backend`` how one is opened.

SmolLM2's oracle engine held its weights in bfloat16, so it is judged with weights rounded so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pie_edge.backend import Backend
from pie_edge.control.engine import Engine
from pie_edge.control.facts import ModelFacts
from pie_edge.control.plan import DeviceSettings
from pie_edge.control.queue import ForwardCall
from pie_edge.model import registry
from pie_edge.program.encodings import Dense, DType
from pie_edge.weights.checkpoint import open_checkpoint
from pie_edge.weights.source import weight_sources
from tests.backend.cases import ArraySource
from tests.backend.device import LoadedModel
from tests.backend.openers import Opening
from tests.conftest import oracle
from tests.support.oracle_run import Floats, largest_error, load, log_softmax, round_bf16, whole_pass
from tests.support.tiny import ARGMAX

EXACT_TOLERANCE = 2e-4
HALVES_TOLERANCE = 0.02
"""The largest error of a log probability that keys and values in half precision may bring."""


def sources(path: Path, backend: Backend) -> tuple[Any, Any, dict[str, Any]]:
    """Spec, family, and each weight as the file has it."""
    checkpoint = open_checkpoint(path)
    facts = registry.facts(checkpoint)
    spec, family = registry.read(facts), registry.family(facts)
    found = weight_sources(checkpoint.tensors, family.weights(spec), backend.limits.supports)
    return spec, family, {name: (source.target, source) for name, source in found.items()}


def rounded(values: Floats) -> ArraySource:
    if values.ndim == 1:
        return ArraySource(values.shape, Dense(DType.F32), {"values": round_bf16(values)[None]})
    bits = (round_bf16(values).view(np.uint32) >> 16).astype(np.uint16)
    return ArraySource(values.shape, Dense(DType.BF16), {"values": bits})


@contextmanager
def rounded_smollm2(open_backend: Opening, path: Path, *, exact: bool) -> Iterator[LoadedModel]:
    async def opened() -> LoadedModel:
        held = load(path)
        made = {name: rounded(values) for name, values in held.weights.items()}
        backend = await asyncio.to_thread(open_backend, exact=exact)
        return await LoadedModel.load(backend, held.spec, held.family, {n: (s.target, s) for n, s in made.items()})

    model = asyncio.run(opened())
    yield model
    asyncio.run(model.backend.close())


@pytest.fixture(scope="module")
def exact_smollm2(open_backend: Opening, smollm2_path: Path) -> Iterator[LoadedModel]:
    with rounded_smollm2(open_backend, smollm2_path, exact=True) as model:
        yield model


@pytest.fixture(scope="module")
def smollm2(open_backend: Opening, smollm2_path: Path) -> Iterator[LoadedModel]:
    with rounded_smollm2(open_backend, smollm2_path, exact=False) as model:
        yield model


@pytest.fixture(scope="module")
def gemma3(open_backend: Opening, gemma3_path: Path) -> Iterator[LoadedModel]:
    async def opened() -> LoadedModel:
        backend = await asyncio.to_thread(open_backend)
        return await LoadedModel.load(backend, *sources(gemma3_path, backend))

    model = asyncio.run(opened())
    yield model
    asyncio.run(model.backend.close())


def log_probabilities(model: LoadedModel, case: dict[str, Any]) -> NDArray[np.float64]:
    """Of the rows that predict each greedy token, led along the oracle's tokens."""
    prompt, greedy = case["prompt_ids"], case["greedy_ids"]
    sampled = list(range(len(prompt) - 1, len(prompt) + len(greedy) - 1))
    inputs = replace(whole_pass(prompt + greedy[:-1]), sample_rows=sampled, draw_keys=[0] * (2 * len(sampled)))
    return log_softmax(asyncio.run(model.logits(inputs)))


def judge(model: LoadedModel, case: dict[str, Any], tolerance: float) -> None:
    """Within tolerance everywhere, and the greedy tokens are the oracle's wherever its best two are further apart."""
    found = log_probabilities(model, case)
    assert largest_error(case, found) < tolerance
    for best, token, step in zip(found.argmax(axis=-1), case["greedy_ids"], case["steps"], strict=True):
        assert best == token or step["logprobs"][0] - step["logprobs"][1] < tolerance


def short(name: str) -> list[dict[str, Any]]:
    """Cases that a software device gets through in a second or two each."""
    return [case for case in oracle(name) if len(case["prompt_ids"]) < 50]


def label(case: dict[str, Any]) -> str:
    return f"{len(case['prompt_ids'])} tokens"


@pytest.mark.parametrize("case", short("smollm2-greedy"), ids=label)
def test_smollm2_in_exact_mode_reproduces_the_oracle(exact_smollm2: LoadedModel, case: dict[str, Any]) -> None:
    judge(exact_smollm2, case, EXACT_TOLERANCE)


@pytest.mark.parametrize("case", short("smollm2-greedy")[:4], ids=label)
def test_smollm2_reproduces_the_oracle(smollm2: LoadedModel, case: dict[str, Any]) -> None:
    judge(smollm2, case, HALVES_TOLERANCE)


@pytest.mark.parametrize("case", short("gemma3-greedy")[:4], ids=label)
def test_gemma3_reproduces_the_oracle(gemma3: LoadedModel, case: dict[str, Any]) -> None:
    judge(gemma3, case, HALVES_TOLERANCE)


async def greedy(engine: Engine, prompt: list[int], count: int) -> list[int]:
    """Tokens of one sequence, each pass reading what the one before gave."""
    space = engine.open_space("test", 0)
    context = space.create_working_set(len(prompt) + count)
    pending, seen, answer = prompt, 0, list[int]()
    while len(answer) < count:
        call = ForwardCall(context, tuple(pending), seen, seen + len(pending), (len(pending) - 1,), ARGMAX)
        (best,) = await space.submit(call)
        seen += len(pending)
        pending = [int(best.data[0])]
        answer += pending
    return answer


def decode(open_backend: Opening, path: Path, cases: Sequence[dict[str, Any]]) -> None:
    """Of several prompts at once, through buckets, pages and epilogues: the oracle's first 16 tokens."""

    async def test() -> None:
        backend = await asyncio.to_thread(open_backend)
        spec, family, weights = sources(path, backend)
        facts = ModelFacts(path.stem, spec.architecture, spec.vocabulary, spec.context, 16)
        engine = await Engine.open(facts, spec, family, weights, backend, DeviceSettings(kv_memory=64 << 20))
        try:
            answers = await asyncio.gather(*(greedy(engine, case["prompt_ids"], 16) for case in cases))
        finally:
            await engine.close()
        assert answers == [case["greedy_ids"][:16] for case in cases]

    asyncio.run(asyncio.wait_for(test(), 280))


@pytest.mark.parametrize(("model", "max_binding"), [("smollm2", 0), ("smollm2", 16 << 20), ("gemma3", 16 << 20)])
def test_the_engine_decodes_the_oracles_tokens(
    request: pytest.FixtureRequest, open_backend: Opening, model: str, max_binding: int
) -> None:
    """Also where nothing larger than 16 MiB may be bound."""
    path, cases = request.getfixturevalue(f"{model}_path"), short(f"{model}-greedy")[:3]
    decode(partial(open_backend, max_binding=max_binding), path, cases)
