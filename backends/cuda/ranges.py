"""Ranges for NVIDIA's profilers: what each launch is, in their timeline. Without a profiler there is nothing, not even a test."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pie_edge.backend import BytesLike

INJECTED = "NVTX_INJECTION64_PATH"
"""Nsight sets it for a process that it looks at, to a library that takes the ranges."""


def marker() -> Any:
    """The package ``nvtx`` if it is installed and a profiler listens, else None."""
    if INJECTED not in os.environ:
        return None
    try:
        return importlib.import_module("nvtx")
    except ImportError:
        return None


class Ranged:
    """A Recorded whose runs and reads are ranges."""

    def __init__(self, recorded: Any, name: str, nvtx: Any) -> None:
        self.recorded = recorded
        self.name = name
        self._nvtx = nvtx

    def run(self, given: Mapping[str, BytesLike]) -> Any:
        return self.within(f"run {self.name}", self.recorded.run, given)

    def run_slowly(self, given: Mapping[str, BytesLike], between: Callable[[int, int], None]) -> Any:
        return self.recorded.run_slowly(given, between)

    def outputs(self, flight: Any) -> Mapping[str, memoryview]:
        found: Mapping[str, memoryview] = self.within(f"read {self.name}", self.recorded.outputs, flight)
        return found

    def within(self, what: str, function: Callable[[Any], Any], given: Any) -> Any:
        with self._nvtx.annotate(what, domain="pie-edge"):
            return function(given)


def run_together(run: Callable[[Any], Any], runs: Sequence[tuple[Ranged, Mapping[str, BytesLike]]]) -> Any:
    """All of them in one range."""
    names = " and ".join(ranged.name for ranged, _ in runs)
    return runs[0][0].within(f"run {names}", run, [(ranged.recorded, given) for ranged, given in runs])
