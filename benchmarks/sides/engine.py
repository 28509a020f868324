"""Ours at the engine's level: calls from Python, no Wasm."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack

import pie_edge
from benchmarks.engines import Opened, Stream, open_engine
from benchmarks.sides.side import Job


class EngineSide:
    def __init__(self, job: Job) -> None:
        self._clock = job.clock
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self._opened: Opened = self._runner.run(
            self._stack.enter_async_context(open_engine(job.model, job.backend, threads=job.threads))
        )
        limits = self._opened.backend.limits
        self.description = f"pie-edge {pie_edge.__version__}, {limits.backend} ({limits.device})"

    def decode(self, prompt: Sequence[int], count: int) -> float:
        return self._runner.run(self._decode(prompt, count))

    def prefill(self, prompt: Sequence[int]) -> float:
        return self._runner.run(self._prefill(prompt))

    def streams(self, prompts: Sequence[Sequence[int]], count: int) -> float:
        return self._runner.run(self._streams(prompts, count))

    def close(self) -> None:
        self._runner.run(self._stack.aclose())
        self._runner.close()

    def _stream(self, room: int) -> Stream:
        return Stream(self._opened.engine.open_space("benchmark", 0), room)

    async def _decode(self, prompt: Sequence[int], count: int) -> float:
        stream = self._stream(len(prompt) + count)
        token = await stream.next_token(prompt)
        start = self._clock()
        await stream.generate([token], count)
        seconds = self._clock() - start
        stream.close()
        return count / seconds

    async def _prefill(self, prompt: Sequence[int]) -> float:
        stream = self._stream(len(prompt))
        start = self._clock()
        await stream.next_token(prompt)
        seconds = self._clock() - start
        stream.close()
        return len(prompt) / seconds

    async def _streams(self, prompts: Sequence[Sequence[int]], count: int) -> float:
        streams = [self._stream(len(prompt) + count) for prompt in prompts]
        start = self._clock()
        await asyncio.gather(*(s.generate(prompt, count) for s, prompt in zip(streams, prompts, strict=True)))
        seconds = self._clock() - start
        for stream in streams:
            stream.close()
        return len(prompts) * count / seconds
