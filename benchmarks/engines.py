"""An engine on a checkpoint, without host or tokenizer, and the passes that benchmarks ask of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pie_edge.backend import Backend
from pie_edge.control.engine import Engine
from pie_edge.control.facts import ModelFacts
from pie_edge.control.plan import DeviceSettings
from pie_edge.control.queue import ForwardCall, HostTensor
from pie_edge.control.space import Space
from pie_edge.model import registry
from pie_edge.sampling import presets
from pie_edge.weights.checkpoint import Checkpoint, open_checkpoint
from pie_edge.weights.source import weight_sources

EMULATED = "cuda, emulated"
"""The CUDA backend on the CPU, which needs neither card nor driver."""
ARGMAX = presets.argmax().wire


@dataclass(frozen=True)
class Opened:
    engine: Engine
    backend: Backend


@asynccontextmanager
async def open_engine(
    path: Path, backend: str, *, exact: bool = False, threads: int = 0, settings: DeviceSettings | None = None
) -> AsyncIterator[Opened]:
    """``backend`` is a backend's name, ``auto``, ``reference`` for the NumPy oracle, or ``EMULATED``."""
    with open_checkpoint(path) as checkpoint:
        device = await _backend(backend, exact, threads)
        try:
            engine = await engine_on(checkpoint, device, settings)
        except BaseException:
            await device.close()
            raise
        checkpoint.release()
        try:
            yield Opened(engine, device)
        finally:
            await engine.close()


async def _backend(name: str, exact: bool, threads: int) -> Backend:
    if name == "reference":
        from tests.support.reference_backend import ReferenceBackend

        reference: Any = ReferenceBackend()
        return cast(Backend, reference)
    if name == EMULATED:
        from tests.backend.cuda_emulated import opened

        return await asyncio.to_thread(opened, exact=exact)
    from pie_edge.backend_choice import choose, open_backend
    from pie_edge.paths import cache_folder

    return await open_backend(choose(name), threads=threads, exact=exact, cache_dir=cache_folder())


async def engine_on(checkpoint: Checkpoint, device: Backend, settings: DeviceSettings | None = None) -> Engine:
    """By default with the settings that a user gets who sets none."""
    facts = registry.facts(checkpoint)
    spec, family = registry.read(facts), registry.family(facts)
    supports = device.limits.supports
    sources = weight_sources(checkpoint.tensors, family.weights(spec), supports)
    weights = {name: (source.target, source) for name, source in sources.items()}
    settings = settings or DeviceSettings()
    model = ModelFacts(checkpoint.path.stem, spec.architecture, spec.vocabulary, spec.context, settings.page_size)
    return await Engine.open(model, spec, family, weights, device, settings)


class Stream:
    """One context of a space: tokens go in at its end."""

    def __init__(self, space: Space, room: int) -> None:
        self._space = space
        self._context = space.create_working_set(room)
        self._seen = 0

    async def forward(self, tokens: Sequence[int], rows: Sequence[int], epilogue: str) -> HostTensor:
        """The epilogue's first result for these rows of ``tokens``."""
        start, self._seen = self._seen, self._seen + len(tokens)
        call = ForwardCall(self._context, tuple(tokens), start, self._seen, tuple(rows), epilogue)
        return (await self._space.submit(call))[0]

    async def next_token(self, tokens: Sequence[int]) -> int:
        return int((await self.forward(tokens, [len(tokens) - 1], ARGMAX)).data[0])

    async def generate(self, prompt: Sequence[int], count: int) -> list[int]:
        """``count`` greedy tokens, whatever they are."""
        answer = [await self.next_token(prompt)]
        while len(answer) < count:
            answer.append(await self.next_token(answer[-1:]))
        return answer

    def close(self) -> None:
        self._space.drop(self._context)


def logits_epilogue(rows: int) -> str:
    """Gives the raw logits of ``rows`` rows: f32 ``[rows, vocabulary]``."""
    node = {"op": "logits", "in": [], "attrs": {"rows": rows}, "line": ""}
    return json.dumps({"v": 1, "nodes": [node], "outputs": [0]})
