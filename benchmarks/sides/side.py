"""What every side can do. Counts are tokens, answers are tokens a second."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Job:
    """What a side is opened for."""

    model: Path
    backend: str
    threads: int
    clock: Callable[[], float] = time.perf_counter
    """Seconds: ``time.process_time`` counts only what this process had of the processors."""


class Side(Protocol):
    description: str
    """Its name and version, and the device."""

    def decode(self, prompt: Sequence[int], count: int) -> float:
        """``count`` tokens of one context, one by one, after the first."""

    def prefill(self, prompt: Sequence[int]) -> float:
        """A prompt into an empty context, and its first token out."""

    def streams(self, prompts: Sequence[Sequence[int]], count: int) -> float:
        """``count`` tokens of each of several contexts at the same time, their prompts' time included."""

    def close(self) -> None: ...
