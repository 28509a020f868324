"""Products of many rows on the tensor cores of each generation: Turing's, those with cp.async, and Hopper's wgmma and TMA."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

pytest.importorskip("tests.support.needs_simt")

from pie_edge.backends.cuda import nvrtc
from pie_edge.backends.cuda.backend import CudaBackend
from pie_edge.errors import DeviceLost
from tests.backend.cuda_cases import MANY
from tests.backend.cuda_emulated import (
    BACKWARD,
    ON_CARD,
    SHUFFLED,
    architecture,
    compiler,
    mend,
    opened,
    scheduled,
)
from tests.backend.device_cases import check
from tests.backend.test_cuda_kernels import GATED_TILE
from tests.simt import build

pytestmark = pytest.mark.skipif(ON_CARD, reason="a card is of one generation")

TURING, ADA, HOPPER = 75, 89, 90


CASES = (*MANY, GATED_TILE, "three products of many rows")
ON = [(generation, name) for generation in (ADA, HOPPER) for name in CASES] + [(TURING, name) for name in CASES[-3:]]


@pytest.mark.parametrize(("generation", "name"), ON)
def test_a_product_of_many_rows_agrees_with_the_reference(generation: int, name: str) -> None:
    with architecture(generation):
        backend = opened()
        check(backend, name)
        asyncio.run(backend.close())


@pytest.fixture(scope="module")
def hopper() -> Iterator[CudaBackend]:
    with architecture(HOPPER):
        found = opened()
        yield found
        asyncio.run(found.close())


@pytest.mark.parametrize(("order", "seed"), [(BACKWARD, 0), (SHUFFLED, 1), (SHUFFLED, 2)])
def test_the_order_of_threads_changes_nothing_of_wgmma(hopper: CudaBackend, order: int, seed: int) -> None:
    with scheduled(order, seed):
        check(hopper, GATED_TILE)


def test_threads_and_engines_never_race_for_shared_memory() -> None:
    with architecture(HOPPER):
        backend = opened(compile_kernels=compiler(nvrtc.sources(), build.TRACED))
        check(backend, GATED_TILE)
        asyncio.run(backend.close())


MUTANTS = (
    ("copy_wait<STAGES - 2>();", ""),
    ("barrier_wait(&stage.arrived, turn);", ""),
    ("turn ^= 1", "turn ^= 0"),
    ("    __syncthreads();\n    // Into", "    // Into"),
    ("wgmma_wait<BLOCKS - 1>(products[n]);", "{}"),
    ("wgmma_wait<0>(products[n]);", "{}"),
    ("wgmma_fence();", ""),
    ("part % 2 * 16", "part % 2 * 8"),
    ("part != 0", "true"),
    ("own.first + i / 2", "own.first + i % 2"),
)
"""What is taken from ``linear_wgmma.cu``, each a wait, a barrier or an index, and what is put in its place."""


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant[0].strip())
def test_a_mutant_of_wgmma_is_caught(mutant: tuple[str, str]) -> None:
    text = nvrtc.sources()["linear_wgmma.cu"]
    changed = text.replace(*mutant)
    assert changed != text
    with architecture(HOPPER):
        backend = opened(compile_kernels=compiler({**nvrtc.sources(), "linear_wgmma.cu": changed}, build.TRACED))
        try:
            with pytest.raises((AssertionError, DeviceLost)):
                check(backend, GATED_TILE)
            asyncio.run(backend.close())
        finally:
            mend()
