"""Products of many rows on the tensor cores of each generation: Turing's, those with cp.async, and Hopper's wgmma and TMA. On a
card they are its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

pytest.importorskip("tests.support.needs_simt")

from pie_edge.backends.cuda.backend import CudaBackend
from tests.backend import broken_cases
from tests.backend.cuda_cases import GATED_TILE, GROUP_TILE, TILES
from tests.backend.cuda_emulated import BACKWARD, GENERATIONS, ON_CARD, SHUFFLED, architecture, opened, scheduled
from tests.backend.device_cases import check

TURING, ADA, HOPPER = 75, 89, 90
EMULATED = [(generation, name) for generation in (ADA, HOPPER) for name in TILES] + [(TURING, n) for n in TILES[-3:]]
ON = [(GENERATIONS[0], name) for name in TILES] if ON_CARD else EMULATED
on_the_emulator = pytest.mark.skipif(ON_CARD, reason="says something of the emulator")


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


@on_the_emulator
@pytest.mark.parametrize("name", [GATED_TILE, GROUP_TILE])
def test_what_is_not_finite_stays_so_in_wgmma(hopper: CudaBackend, name: str) -> None:
    broken_cases.check(hopper, name)


@on_the_emulator
@pytest.mark.parametrize(("order", "seed"), [(BACKWARD, 0), (SHUFFLED, 1), (SHUFFLED, 2)])
def test_the_order_of_threads_changes_nothing_of_wgmma(hopper: CudaBackend, order: int, seed: int) -> None:
    with scheduled(order, seed):
        check(hopper, GATED_TILE)
