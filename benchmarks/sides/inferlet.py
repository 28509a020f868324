"""Ours as a user has it: inferlets in the Wasm host."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import pie_edge
from benchmarks.sides.side import Job

PROGRAM = Path(__file__).resolve().parent.parent / "inferlets" / "generate.py"


class InferletSide:
    def __init__(self, job: Job) -> None:
        from pie_edge.config import Settings
        from pie_edge.runtime import open_runtime

        self._runner = asyncio.Runner()
        settings = Settings(threads=job.threads)
        self._runtime = self._runner.run(open_runtime(str(job.model), settings, backend=job.backend))
        choice = self._runtime.choice
        self.description = f"pie-edge {pie_edge.__version__}, an inferlet on {choice.backend} ({choice.device})"

    def decode(self, prompt: Sequence[int], count: int) -> float:
        timings = self._runner.run(self._run(prompt, count + 1))
        return timings["tokens_per_second"]

    def prefill(self, prompt: Sequence[int]) -> float:
        """From the inferlet's start, so instantiation is included."""
        return len(prompt) / self._runner.run(self._run(prompt, 1))["time_to_first_token"]

    def streams(self, prompts: Sequence[Sequence[int]], count: int) -> float:
        return self._runner.run(self._streams(prompts, count))

    def close(self) -> None:
        self._runner.run(self._runtime.close())
        self._runner.close()

    async def _run(self, prompt: Sequence[int], count: int) -> dict[str, float]:
        return (await self._runtime.run(PROGRAM, {"ids": list(prompt), "count": count})).timings

    async def _streams(self, prompts: Sequence[Sequence[int]], count: int) -> float:
        start = time.perf_counter()
        await asyncio.gather(*(self._run(prompt, count) for prompt in prompts))
        return len(prompts) * count / (time.perf_counter() - start)
