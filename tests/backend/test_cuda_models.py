"""The real models through the engine on the CUDA backend's own host code, over the emulator: graphs, pages and epilogues."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("tests.support.needs_simt")

from pie_edge.control.engine import Engine, ModelFacts
from pie_edge.control.plan import DeviceSettings
from tests.backend.cuda_emulated import opened
from tests.backend.models_on_device import greedy, short, sources


@pytest.mark.parametrize("model", ["smollm2", "gemma3"])
def test_the_engine_decodes_the_oracles_tokens(request: pytest.FixtureRequest, model: str) -> None:
    path = request.getfixturevalue(f"{model}_path")
    cases = sorted(short(f"{model}-greedy"), key=lambda case: len(case["prompt_ids"]))[:2]

    async def test() -> None:
        backend = await asyncio.to_thread(opened)
        spec, family, weights = sources(path, backend)
        facts = ModelFacts(model, spec.architecture, spec.vocabulary, spec.context, 16)
        engine = await Engine.open(facts, spec, family, weights, backend, DeviceSettings(kv_memory=64 << 20))
        try:
            answers = await asyncio.gather(*(greedy(engine, case["prompt_ids"], 16) for case in cases))
        finally:
            await engine.close()
        assert answers == [case["greedy_ids"][:16] for case in cases]

    asyncio.run(asyncio.wait_for(test(), 280))
