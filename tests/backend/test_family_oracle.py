"""Every family in both containers against ``transformers``: logits of every position, however the sequence is forwarded."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import numpy as np
import pytest

from pie_edge.backend import Backend
from pie_edge.control.engine import Engine
from pie_edge.control.facts import ModelFacts
from pie_edge.control.plan import DeviceSettings
from pie_edge.control.queue import ForwardCall
from pie_edge.program.encodings import Dense, DType
from tests.support import family_oracle
from tests.support.family_configs import CONFIGS
from tests.support.family_oracle import CASES, Oracle
from tests.support.oracle_run import Loaded, in_parts, load
from tests.support.reference_backend import ReferenceBackend
from tests.support.tiny import ArrayWeight

TOLERANCE = 1e-4
LOGITS = json.dumps({"v": 1, "nodes": [{"op": "logits", "in": [], "attrs": {}, "line": "test:1"}], "outputs": [0]})


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], tuple[Oracle, Loaded]]:
    found = {}
    for name, container in CASES:
        oracle = family_oracle.read(name)
        path = oracle.write(tmp_path_factory.mktemp(name), container)
        found[name, container] = oracle, load(path, oracle.context)
    return found


def test_the_fixtures_are_those_of_the_configurations() -> None:
    assert {path.stem for path in family_oracle.FOLDER.glob("*.json")} == set(CONFIGS)
    assert {name: family_oracle.read(name).config for name in CONFIGS} == json.loads(json.dumps(CONFIGS))


@pytest.mark.parametrize(("name", "container"), CASES)
def test_a_family_says_what_transformers_says(models: Any, name: str, container: str) -> None:
    oracle, model = models[name, container]
    count = len(oracle.tokens)
    for ends in ([count], [1, 8, 17, 40, count], list(range(1, count + 1))):
        found = in_parts(model, oracle.tokens, ends)
        np.testing.assert_allclose(found, oracle.logits, rtol=0, atol=TOLERANCE)
    assert found[len(oracle.prompt) - 1 :].argmax(axis=-1).tolist() == oracle.greedy


@pytest.mark.parametrize(("name", "container"), CASES)
def test_it_says_the_same_beside_strangers(models: Any, name: str, container: str) -> None:
    oracle, model = models[name, container]

    async def test() -> None:
        engine = await opened(model)
        strangers = [oracle.prompt[i::3] for i in range(3)]
        found, *_ = await asyncio.gather(*(greedy(engine, i, p) for i, p in enumerate([oracle.prompt, *strangers])))
        assert engine.statistics.largest_step > 1
        await engine.close()
        rows = np.array(found)
        assert rows.argmax(axis=-1).tolist() == oracle.greedy
        np.testing.assert_allclose(rows, oracle.logits[len(oracle.prompt) - 1 :], rtol=0, atol=TOLERANCE)

    asyncio.run(asyncio.wait_for(test(), 60))


async def opened(model: Loaded, backend: Backend | None = None) -> Engine:
    spec = model.spec
    facts = ModelFacts("tiny", spec.architecture, spec.vocabulary, spec.context, 16)
    weights = {name: (Dense(DType.F32), ArrayWeight(values)) for name, values in model.weights.items()}
    settings = DeviceSettings(kv_memory=1 << 20, sequences=8, rows=24, speculation_depth=0)
    return await Engine.open(facts, spec, model.family, weights, backend or ReferenceBackend(), settings)


async def greedy(engine: Engine, index: int, prompt: list[int]) -> list[Any]:
    """The logits that chose each of 16 tokens."""
    space = engine.open_space(f"s{index}", 0)
    context = space.create_working_set(len(prompt) + 16)
    pending, seen, found = prompt, 0, []
    while len(found) < 16:
        call = ForwardCall(context, tuple(pending), seen, seen + len(pending), (len(pending) - 1,), LOGITS)
        (logits,) = await space.submit(call)
        found.append(np.array(logits.data))
        seen, pending = seen + len(pending), [int(found[-1].argmax())]
    return found
