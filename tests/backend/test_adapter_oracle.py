"""Low-rank adapters against PEFT: alone, several in one step, beside rows that have none, in both containers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pie_edge.backend import Backend
from pie_edge.control.device import DeviceSettings
from pie_edge.control.engine import Engine
from pie_edge.control.facts import ModelFacts
from pie_edge.control.queue import ForwardCall
from pie_edge.model.adapters import Adapters, find_module, targets
from pie_edge.program.encodings import Dense, DType
from pie_edge.weights.adapters import stack
from pie_edge.weights.peft import read_peft
from tests.backend import openers
from tests.support import adapters, family_oracle
from tests.support.oracle_run import Loaded, load
from tests.support.reference_backend import ReferenceBackend
from tests.support.tiny import ArrayWeight

TOLERANCE = 1e-4
LOGITS = json.dumps({"v": 1, "nodes": [{"op": "logits", "in": [], "attrs": {}, "line": "test:1"}], "outputs": [0]})
CASES = [(model, container) for model in adapters.ADAPTERS for container in ("safetensors", "gguf")]


def loaded(folder: Path, model: str, base: Loaded) -> Adapters:
    read = {name: read_peft(adapters.write_adapter(folder / name, model, name)) for name in adapters.ADAPTERS[model]}
    known = targets(base.family, base.spec)
    rank, stacked = stack(read, lambda module: find_module(module, known))
    return Adapters(tuple(read), rank, {name: memoryview(values).cast("B") for name, values in stacked.items()})


async def opened(base: Loaded, held: Adapters, backend: Backend) -> Engine:
    spec = base.spec
    facts = ModelFacts("tiny", spec.architecture, spec.vocabulary, spec.context, 16)
    weights = {name: (Dense(DType.F32), ArrayWeight(values)) for name, values in base.weights.items()}
    settings = DeviceSettings(kv_memory=1 << 20, sequences=128, rows=160, speculation_depth=0)
    return await Engine.open(facts, spec, base.family, weights, backend, settings, adapters=held)


async def logits_of(engine: Engine, name: str | None, tokens: list[int], ends: list[int]) -> Any:
    """[tokens, vocabulary], through an adapter, in parts that end at ``ends``."""
    space = engine.open_space(str(name), 0)
    context = space.create_working_set(len(tokens))
    found, start = [], 0
    for end in ends:
        rows = tuple(range(end - start))
        call = ForwardCall(context, tuple(tokens[start:end]), start, end, rows, _logits(len(rows)), adapter=name)
        (logits,) = await space.submit(call)
        found.append(np.array(logits.data).reshape(end - start, -1))
        start = end
    space.close()
    return np.concatenate(found)


def _logits(rows: int) -> str:
    return LOGITS.replace('"attrs": {}', f'"attrs": {{"rows": {rows}}}')


BACKENDS = ("reference", "cpu", "vulkan", "wgpu")


async def backend_of(name: str) -> Backend:
    if name == "reference":
        return ReferenceBackend()
    options = {"threads": 1} if name == "cpu" else {"exact": True}
    return await asyncio.to_thread(openers.named(name), **options)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("model", "container"), CASES)
def test_adapters_say_what_peft_says(tmp_path: Path, model: str, container: str, backend: str) -> None:
    oracle, plain = adapters.read(model), family_oracle.read(model)
    base = load(plain.write(tmp_path, container))
    held = loaded(tmp_path, model, base)
    count = len(oracle.tokens)

    async def test() -> None:
        engine = await opened(base, held, await backend_of(backend))
        expected = {None: plain.logits, **oracle.logits}
        for name, logits in oracle.logits.items():
            assert np.abs(logits - plain.logits).max() > 0.5, "an adapter that changes nothing tests nothing"
            alone = await logits_of(engine, name, oracle.tokens, [5, 6, 30, count])
            np.testing.assert_allclose(alone, logits, rtol=0, atol=TOLERANCE)
        together = await asyncio.gather(*(logits_of(engine, n, oracle.tokens, [1, 9, count]) for n in expected))
        for found, logits in zip(together, expected.values(), strict=True):
            np.testing.assert_allclose(found, logits, rtol=0, atol=TOLERANCE)
        assert engine.statistics.largest_step > 1
        await engine.close()

    asyncio.run(asyncio.wait_for(test(), 60))
