"""Every kernel of the CUDA backend against the NumPy reference, on the emulator and through the backend's own host code."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("tests.support.needs_simt")

from pie_edge.backends.cuda import nvrtc
from pie_edge.backends.cuda.backend import CudaBackend
from tests.backend import broken_cases, device_cases
from tests.backend.cuda_cases import GATED, MANY, OWN
from tests.backend.cuda_emulated import BACKWARD, ON_CARD, SHUFFLED, architecture, compiler, counted, opened, scheduled
from tests.backend.device import assert_close, run_case
from tests.backend.device_cases import check
from tests.simt import build

TRACED = compiler(nvrtc.sources(), build.TRACED)


@pytest.fixture(scope="module")
def backend() -> Iterator[CudaBackend]:
    found = opened()
    yield found
    asyncio.run(found.close())


@pytest.fixture(scope="module")
def traced() -> Iterator[CudaBackend]:
    found = opened(compile_kernels=TRACED)
    yield found
    asyncio.run(found.close())


@pytest.mark.parametrize("name", [*device_cases.NAMES, *OWN])
def test_a_kernel_agrees_with_the_reference(backend: CudaBackend, name: str) -> None:
    check(backend, name)


@pytest.mark.parametrize("name", [*broken_cases.NAMES, *MANY, GATED])
def test_what_is_not_finite_stays_so(backend: CudaBackend, name: str) -> None:
    broken_cases.check(backend, name)


@pytest.mark.parametrize("encoding", ["f16", "bf16", "affine4g32-f16-min"])
def test_numbers_near_the_largest_stay_numbers(backend: CudaBackend, encoding: str) -> None:
    """On tensor cores too, whose halves end at 65,504."""
    case = device_cases.build(f"linear {encoding}, 70 rows")
    case.states["x"][:, 5] = 1e37
    found = asyncio.run(run_case(backend, case))
    for output, expected in case.expected().items():
        assert np.isfinite(expected).all()
        assert_close(found[output], expected, case)


on_the_emulator = pytest.mark.skipif(ON_CARD, reason="says something of the emulator")


@on_the_emulator
@pytest.mark.parametrize(("order", "seed"), [(BACKWARD, 0), (SHUFFLED, 1), (SHUFFLED, 2)])
def test_the_order_of_threads_changes_nothing(backend: CudaBackend, order: int, seed: int) -> None:
    with scheduled(order, seed):
        for name in device_cases.AWKWARD:
            check(backend, name)


FORMATS = (
    "affine4g32-f16-min",
    "affine5g32-f16-z16",
    "affine6g64-f16-min",
    "affine8g32-f16-z16",
    "bf16",
    "f16",
)


@on_the_emulator
@pytest.mark.parametrize("encoding", FORMATS)
def test_weights_are_read_in_whole_sectors(traced: CudaBackend, encoding: str) -> None:
    """Codes and what else is wide, and scales and what else is narrow: within a tenth of the fewest sectors that a decode can do
    with, and shared memory without bank conflicts to speak of."""
    narrow, wide, shared = seen(traced, "linear", f"linear {encoding} 1 rows")
    for found in (narrow, wide):
        assert 0 < found["sectors"] <= 1.1 * found["ideal_sectors"]
    assert shared["waves"] <= 1.2 * shared["ideal_waves"]


@on_the_emulator
@pytest.mark.parametrize(("generation", "kernel"), [(86, "linear_tile"), (90, "linear_wgmma")])
def test_products_of_many_rows_are_written_in_whole_sectors(generation: int, kernel: str) -> None:
    with architecture(generation):
        backend = opened(compile_kernels=TRACED)
        narrow, wide, _ = seen(backend, kernel, "linear 576 61 rows")
        asyncio.run(backend.close())
    for found in (narrow, wide):
        assert 0 < found["sectors"] <= 1.1 * found["ideal_sectors"]


def seen(backend: CudaBackend, kernel: str, case: str) -> list[dict[str, int]]:
    """What a kernel does in a case."""
    before = counted(kernel)
    check(backend, case)
    return [{key: now[key] - then[key] for key in now} for then, now in zip(before, counted(kernel), strict=True)]
