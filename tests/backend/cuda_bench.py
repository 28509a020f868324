"""Trials of the CUDA kernels: on the emulator, traced, and with sites for mutants. A trial finds wrong results, races, misaligned
addresses and all else that ends a launch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pie_edge.backends.cuda import nvrtc
from pie_edge.backends.cuda.backend import CudaBackend
from pie_edge.errors import DeviceLost
from tests.backend import cuda_emulated
from tests.backend.openers import cuda
from tests.simt import build
from tests.simt.mutants import Mutant, Site, Sites

AMPERE, HOPPER = 86, 90
SITES = Sites(nvrtc.sources())
"""Of all files of kernels."""
traced = cuda_emulated.compiler(SITES.texts, build.TRACED)


@dataclass(frozen=True)
class Trial:
    name: str
    run: Callable[[CudaBackend], None]
    """Raises AssertionError for a wrong result, DeviceLost for a fault."""
    generation: int = AMPERE

    def __str__(self) -> str:
        return self.name


class Bench:
    """Runs trials, each on a backend of its own, so that no memory holds an earlier run's results; kernels are traced and have
    sites."""

    def __init__(self, trials: Sequence[Trial]) -> None:
        self._trials = trials
        self._reached: dict[Trial, set[Site]] = {}
        self.files: set[str] = set()
        """Of what was compiled, with all that those include."""

    def run(self, trial: Trial) -> None:
        with cuda_emulated.architecture(trial.generation):
            backend = cuda(compile_kernels=self._compile)
            try:
                trial.run(backend)
            finally:
                cuda_emulated.mend()
                asyncio.run(backend.close())

    def catches(self, trial: Trial, mutant: Mutant) -> bool:
        with cuda_emulated.mutated(mutant), np.errstate(all="ignore"):
            try:
                self.run(trial)
            except (AssertionError, DeviceLost):
                return True
        return False

    def _compile(self, file: str, text: str, defines: tuple[str, ...]) -> bytes:
        self.files |= build.files_of(file, {**SITES.texts, file: text or SITES.texts[file]})
        return traced(file, text, defines)

    def try_out(self, trial: Trial) -> None:
        """Kernels as they are; what it came to is kept."""
        if trial in self._reached:
            return
        cuda_emulated.forget_sites()
        self.run(trial)
        self._reached[trial] = {site for site in SITES.found if cuda_emulated.came_to(site)}

    def reaching(self, site: Site) -> list[Trial]:
        """The trials that come to a site."""
        for trial in self._trials:
            self.try_out(trial)
        return [trial for trial in self._trials if site in self._reached[trial]]
