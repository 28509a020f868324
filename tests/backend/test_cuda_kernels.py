"""Every kernel of the CUDA backend against the NumPy reference, on the emulator and through the backend's own host code."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

pytest.importorskip("tests.support.needs_simt")

from pie_edge.backends.cuda import nvrtc
from pie_edge.backends.cuda.backend import CudaBackend
from pie_edge.errors import DeviceLost
from pie_edge.program import trace as ops
from pie_edge.program.encodings import Affine, DType
from tests.backend import cases, vulkan_cases
from tests.backend.cases import Case, rows_step
from tests.backend.cuda_emulated import BACKWARD, SHUFFLED, check, compiler, counted, mend, opened, scheduled
from tests.simt import build

GATED = "a gated unit"


def _gated(case: Case) -> None:
    """Two products that become one launch, whose warps share columns."""
    case.step(*rows_step(3, 8))
    x = case.row_state("x", case.normal(8, 384))
    gate, up = (case.weight(name, (40, 384), Affine(4, 32, DType.F16, None)) for name in ("gate", "up"))
    case.results = (ops.glu(case.trace, ops.linear(case.trace, x, gate), ops.linear(case.trace, x, up), act="silu"),)
    case.tolerance = 1e-4


cases.ALL.setdefault(GATED, _gated)


@pytest.fixture(scope="module")
def backend() -> Iterator[CudaBackend]:
    found = opened()
    yield found
    asyncio.run(found.close())


@pytest.fixture(scope="module")
def traced() -> Iterator[CudaBackend]:
    found = opened(compile_kernels=compiler(nvrtc.sources(), build.TRACED))
    yield found
    asyncio.run(found.close())


@pytest.mark.parametrize("name", [*vulkan_cases.NAMES, GATED])
def test_a_kernel_agrees_with_the_reference(backend: CudaBackend, name: str) -> None:
    check(backend, name)


@pytest.mark.parametrize(("order", "seed"), [(BACKWARD, 0), (SHUFFLED, 1), (SHUFFLED, 2)])
def test_the_order_of_threads_changes_nothing(backend: CudaBackend, order: int, seed: int) -> None:
    with scheduled(order, seed):
        for name in vulkan_cases.AWKWARD:
            check(backend, name)


RACES = (
    "linear affine4g32-f16-min 1 rows",
    "linear bf16 7 rows",
    GATED,
    "rms_norm 576x1 1 rows",
    "layer_norm 13 7 rows",
    "route 8 of 128 11 rows",
    "expert_linear bf16, rows past the true ones",
    "a mixture of experts",
    "attention batch",
    "halves attention long decode",
    "attention sinks, masked, window",
    "halves observed attention batch",
    "gated_delta many rows",
)


@pytest.mark.parametrize("name", RACES)
def test_threads_never_race_for_shared_memory(traced: CudaBackend, name: str) -> None:
    check(traced, name)


def test_no_access_is_misaligned() -> None:
    backend = opened(compile_kernels=compiler(nvrtc.sources(), build.ALIGNED))
    for name in (
        "linear affine5g16-f32-min 7 rows",
        "linear f16 1 rows",
        "halves attention batch",
        "attention width 20",
    ):
        check(backend, name)
    asyncio.run(backend.close())


@pytest.mark.parametrize("encoding", ["affine4g32-f16-min", "affine8g32-f16-z16", "bf16"])
def test_weights_are_read_in_whole_sectors(traced: CudaBackend, encoding: str) -> None:
    """Within a tenth of the fewest that a decode can do with, and shared memory without bank conflicts to speak of."""
    before = counted("linear")
    check(traced, f"linear {encoding} 1 rows")
    pairs = zip(before, counted("linear"), strict=True)
    _, wide, shared = ({key: now[key] - then[key] for key in now} for then, now in pairs)
    assert wide["instructions"] > 0
    assert wide["sectors"] <= 1.1 * wide["ideal_sectors"]
    assert shared["waves"] <= 1.2 * shared["ideal_waves"]


Mutant = tuple[str, str, str, str]
"""A file, what is replaced there, by what, and a case that must notice."""
_BARRIER = "__syncthreads();"


def without_barriers() -> list[Mutant]:
    """Each barrier of some files, taken away."""
    cases = {
        "common.cuh": "layer_norm 768 1 rows",
        "product.cuh": GATED,
        "attention.cu": "halves attention long decode",
        "recurrent.cu": "gated_delta many rows",
        "route.cu": "a mixture of experts",
    }
    found = []
    for file, case in cases.items():
        pieces = nvrtc.sources()[file].split(_BARRIER)
        for n in range(1, len(pieces)):
            whole = _BARRIER.join(pieces[:n]) + _BARRIER.join(["", *pieces[n:]])[len(_BARRIER) :]
            found.append((file, "", whole, case))
    return found


OFF_BY_ONE: tuple[Mutant, ...] = (
    ("elementwise.cu", "column >= width", "column + 1 >= width", "add 13 7 rows"),
    ("norm.cu", "i < width", "i <= width", "rms_norm 7x3 8 rows"),
    ("weights.cuh", "item) * ROWS + row % ROWS", "item + 1) * ROWS + row % ROWS", "linear bf16 7 rows"),
    ("product.cuh", "item < end", "item <= end", "linear affine4g32-f16-min 1 rows"),
    ("attention.cuh", "j > step.row_index[row]", "j >= step.row_index[row]", "attention prefill after past"),
    ("attention.cuh", ">= (int)a.window", "> (int)a.window", "attention window"),
    ("rope.cu", "slot % cache.page", "(slot + 1) % cache.page", "attention decode"),
    ("short_conv.cu", "back <= place", "back < place", "short_conv"),
)


@pytest.mark.parametrize("mutant", [*without_barriers(), *OFF_BY_ONE], ids=lambda mutant: mutant[0])
def test_a_mutant_is_caught(mutant: Mutant) -> None:
    """What the other tests find is found: a barrier that is missing, an index that is one off."""
    file, old, new, case = mutant
    text = nvrtc.sources()[file]
    changed = text.replace(old, new) if old else new
    assert changed != text
    backend = opened(compile_kernels=compiler({**nvrtc.sources(), file: changed}, build.TRACED))
    try:
        with pytest.raises((AssertionError, DeviceLost)):
            check(backend, case)
        asyncio.run(backend.close())
    finally:
        mend()
