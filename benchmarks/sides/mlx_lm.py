"""mlx-lm, greedy, on whatever device MLX takes by itself."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator, Sequence

import mlx.core as mx
from mlx_lm.generate import generate_step
from mlx_lm.utils import load_model

from benchmarks.sides.side import Job


class MlxLmSide:
    """``job.model`` is a snapshot's folder."""

    def __init__(self, job: Job) -> None:
        self._clock = job.clock
        self._model, _ = load_model(job.model)
        version = importlib.metadata.version("mlx-lm")
        self.description = f"mlx-lm {version} on {'Metal' if mx.metal.is_available() else 'the processor'}"

    def decode(self, prompt: Sequence[int], count: int) -> float:
        tokens = self._tokens(prompt, count + 1)
        next(tokens)
        start = self._clock()
        for _ in range(count):
            next(tokens)
        return count / (self._clock() - start)

    def prefill(self, prompt: Sequence[int]) -> float:
        start = self._clock()
        next(self._tokens(prompt, 1))
        return len(prompt) / (self._clock() - start)

    def streams(self, prompts: Sequence[Sequence[int]], count: int) -> float:
        """One after the other: its generator has one context."""
        start = self._clock()
        for prompt in prompts:
            for _ in self._tokens(prompt, count):
                pass
        return len(prompts) * count / (self._clock() - start)

    def close(self) -> None: ...

    def _tokens(self, prompt: Sequence[int], count: int) -> Iterator[int]:
        for token, _ in generate_step(mx.array(list(prompt)), self._model, max_tokens=count):
            yield int(token)
