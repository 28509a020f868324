"""4,096 tokens: the last logits are the oracle's, with windows that end far before the prompt's start, and positions that were
scaled. Through the engine, in chunks; where every layer has a window, in a pool that holds a fraction of the prompt."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pie_edge.backend import Backend
from pie_edge.backend_choice import probe
from pie_edge.control.engine import Engine
from pie_edge.control.facts import ModelFacts
from pie_edge.control.plan import DeviceSettings
from pie_edge.control.queue import ForwardCall
from pie_edge.model import registry
from pie_edge.weights.checkpoint import open_checkpoint
from pie_edge.weights.source import weight_sources
from tests.backend import openers
from tests.backend.test_family_oracle import LOGITS
from tests.support.family_checkpoints import make_weights, write_snapshot
from tests.support.long_configs import CONTEXT, LONG, TOKENS, prompt
from tests.support.reference_backend import ReferenceBackend

FOLDER = Path(__file__).resolve().parents[1] / "data" / "long"
ROWS = 512
TOLERANCE = 6e-4
"""`transformers` multiplies positions by frequencies in float32: at position 4,095 its angles are off by up to 1e-4, which moves
these logits by up to 4e-4. With angles in double Mistral's are within 1e-5."""
BETWEEN = 1e-4
"""What two of ours may differ by."""
WINDOWED = ("mistral", "phi3")
"""Whose every layer has a window of 512: these tokens, a chunk and a page or two have to have room."""
QUICK = ("phi3", "llama-yarn")
"""Whose prompt NumPy gets through in a second or two."""


async def opened(backend: str) -> Backend:
    if backend == "reference":
        return ReferenceBackend()
    options = {"threads": 2} if backend == "cpu" else {"exact": True, "memory": 256 << 20}
    return await asyncio.to_thread(openers.named(backend), **options)


def oracle(name: str) -> Any:
    held = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    assert held["config"] == json.loads(json.dumps(LONG[name]))
    return np.frombuffer(base64.b64decode(held["logits"]), "<f4")


async def last_logits(backend: Backend, path: Path, name: str) -> Any:
    with open_checkpoint(path) as checkpoint:
        facts = registry.facts(checkpoint, CONTEXT.get(name, 0))
        spec, family = registry.read(facts), registry.family(facts)
        sources = weight_sources(checkpoint.tensors, family.weights(spec), backend.limits.supports)
        weights = {weight: (source.target, source) for weight, source in sources.items()}
        page = 16 * spec.kv_bytes_per_token(backend.limits.kv_dtype)
        pages = (512 + 2 * ROWS) // 16 + 2 if name in WINDOWED else TOKENS // 16
        settings = DeviceSettings(kv_memory=pages * page, rows=ROWS, sequences=1, speculation_depth=0)
        model = ModelFacts(name, spec.architecture, spec.vocabulary, spec.context, 16)
        engine = await Engine.open(model, spec, family, weights, backend, settings)
    space = engine.open_space("long", 0)
    context = space.create_working_set(TOKENS)
    call = ForwardCall(context, tuple(prompt(LONG[name])), 0, TOKENS, (TOKENS - 1,), LOGITS)
    (logits,) = await space.submit(call)
    released = space.usage.released_pages
    assert (released >= (TOKENS - 512 - ROWS) // 16) == (name in WINDOWED)
    await engine.close()
    return np.array(logits.data)


@pytest.mark.parametrize("name", LONG)
def test_the_last_logits_of_a_long_prompt_are_the_oracles_on_cpu_and_vulkan(name: str, tmp_path: Path) -> None:
    path = write_snapshot(tmp_path, LONG[name], make_weights(LONG[name]))
    backends = ["cpu", *["vulkan"] * bool(probe("vulkan").devices), *["reference"] * (name in QUICK)]

    async def test(backend: str) -> Any:
        return await last_logits(await opened(backend), path, name)

    found = {backend: asyncio.run(asyncio.wait_for(test(backend), 120)) for backend in backends}
    for logits in found.values():
        np.testing.assert_allclose(logits, oracle(name), rtol=0, atol=TOLERANCE)
        np.testing.assert_allclose(logits, found["cpu"], rtol=0, atol=BETWEEN)
