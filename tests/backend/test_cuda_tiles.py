"""Products of many rows on the tensor cores of each generation: Turing's, those with cp.async, and Hopper's wgmma and TMA."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

pytest.importorskip("tests.support.needs_simt")

from pie_edge.backends.cuda.backend import CudaBackend
from tests.backend import broken_cases
from tests.backend.cuda_cases import GATED_TILE, GROUP_TILE, MANY
from tests.backend.cuda_emulated import BACKWARD, ON_CARD, SHUFFLED, architecture, opened, scheduled
from tests.backend.device_cases import check

pytestmark = pytest.mark.skipif(ON_CARD, reason="a card is of one generation")

TURING, ADA, HOPPER = 75, 89, 90


CASES = (*MANY, GATED_TILE, GROUP_TILE)
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


@pytest.mark.parametrize("name", [GATED_TILE, GROUP_TILE])
def test_what_is_not_finite_stays_so_in_wgmma(hopper: CudaBackend, name: str) -> None:
    broken_cases.check(hopper, name)


@pytest.mark.parametrize(("order", "seed"), [(BACKWARD, 0), (SHUFFLED, 1), (SHUFFLED, 2)])
def test_the_order_of_threads_changes_nothing_of_wgmma(hopper: CudaBackend, order: int, seed: int) -> None:
    with scheduled(order, seed):
        check(hopper, GATED_TILE)
