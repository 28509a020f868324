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
from tests.backend import cases, device_cases
from tests.backend.cases import Builder, Case, rows_step
from tests.backend.cuda_emulated import BACKWARD, ON_CARD, SHUFFLED, compiler, counted, mend, opened, scheduled
from tests.backend.device_cases import check
from tests.simt import build

GATED, GATED_TILE = "a gated unit", "a gated unit of many rows"


def _gated(rows: int, bucket: int) -> Builder:
    """Two products that become one launch."""

    def make(case: Case) -> None:
        case.step(*rows_step(rows, bucket))
        x, t = case.row_state("x", case.normal(bucket, 384)), case.trace
        gate, up = (case.weight(name, (40, 384), Affine(4, 32, DType.F16, None)) for name in ("gate", "up"))
        case.results = (ops.glu(t, ops.linear(t, x, gate), ops.linear(t, x, up), act="silu"),)
        case.tolerance = 1e-4

    return make


def _group(case: Case) -> None:
    """Three products of other sizes that read the same rows."""
    case.step(*rows_step(70, 72))
    x, t = case.row_state("x", case.normal(72, 96)), case.trace
    weights = [case.weight(f"w{n}", (rows, 96), Affine(8, 32, DType.F16, 128)) for n, rows in enumerate((130, 20, 9))]
    biases = [case.weight(f"b{n}", (rows,), cases.F32) for n, rows in enumerate((130, 20, 9))]
    case.results = tuple(ops.linear(t, x, w, b) for w, b in zip(weights, biases, strict=True))
    case.tolerance = 1e-4


OWN = {GATED: _gated(3, 8), GATED_TILE: _gated(37, 40), "three products of many rows": _group}
"""Launches that only this backend has so."""
for _name, _builder in OWN.items():
    cases.ALL.setdefault(_name, _builder)


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


@pytest.mark.parametrize("name", [*device_cases.NAMES, *OWN])
def test_a_kernel_agrees_with_the_reference(backend: CudaBackend, name: str) -> None:
    check(backend, name)


on_the_emulator = pytest.mark.skipif(ON_CARD, reason="says something of the emulator")


@on_the_emulator
@pytest.mark.parametrize(("order", "seed"), [(BACKWARD, 0), (SHUFFLED, 1), (SHUFFLED, 2)])
def test_the_order_of_threads_changes_nothing(backend: CudaBackend, order: int, seed: int) -> None:
    with scheduled(order, seed):
        for name in device_cases.AWKWARD:
            check(backend, name)


RACES = (
    "linear affine4g32-f16-min 1 rows",
    "linear bf16 7 rows",
    GATED,
    GATED_TILE,
    "rms_norm 576x1 1 rows",
    "layer_norm 13 7 rows",
    "route 8 of 128 11 rows",
    "expert_linear bf16, rows past the true ones",
    "a mixture of experts",
    "attention batch",
    "halves attention long decode",
    "attention sinks, masked, window",
    "halves attention batch",
    "halves observed attention batch",
    "gated_delta many rows",
)


@on_the_emulator
@pytest.mark.parametrize("name", RACES)
def test_threads_never_race_for_shared_memory(traced: CudaBackend, name: str) -> None:
    check(traced, name)


@on_the_emulator
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


@on_the_emulator
@pytest.mark.parametrize("encoding", ["affine4g32-f16-min", "affine8g32-f16-z16", "bf16"])
def test_weights_are_read_in_whole_sectors(traced: CudaBackend, encoding: str) -> None:
    """Within a tenth of the fewest that a decode can do with, and shared memory without bank conflicts to speak of."""
    before = counted("linear")
    check(traced, f"linear {encoding} 1 rows")
    pairs = zip(before, counted("linear"), strict=True)
    _, wide, shared = ({key: now[key] - then[key] for key in now} for then, now in pairs)
    assert wide["instructions"] > 0
    assert wide["sectors"] <= 1.1 * wide["ideal_sectors"]
    # A store of four floats is traced as four, whose banks a card doesn't visit apart.
    assert encoding == "bf16" or shared["waves"] <= 1.2 * shared["ideal_waves"]


Mutant = tuple[str, str, str, str]
"""A file, what is replaced there, by what, and a case that must notice."""
_BARRIER = "__syncthreads();"


def without_barriers() -> list[Mutant]:
    """Each barrier of some files, taken away."""
    cases = {
        "common.cuh": "layer_norm 768 1 rows",
        "product.cuh": GATED,
        "linear_tile.cu": GATED_TILE,
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
    ("linear_tile.cu", "i / 2 * 8;", "(i / 2 + 1) * 8;", GATED_TILE),
    ("linear_tile.cu", "    copy_wait<STAGES - 2>();\n", "", GATED_TILE),
    ("linear_tile.cu", "copy_wait<STAGES - 2>", "copy_wait<STAGES - 1>", GATED_TILE),
    ("halve.cu", "block >= to.blocks", "block + 1 >= to.blocks", GATED_TILE),
    ("product.cuh", "item < end", "item <= end", "linear affine4g32-f16-min 1 rows"),
    ("attention.cuh", "j > step.row_index[row]", "j >= step.row_index[row]", "attention prefill after past"),
    ("attention.cuh", ">= (int)a.window", "> (int)a.window", "attention window"),
    ("attention_tile.cu", "  __syncwarp();\n", "", "halves attention batch"),
    ("attention_tile.cu", "j > index", "j >= index", "halves attention prefill after past"),
    ("attention_tile.cu", "2 * c + n / 2 * 8", "2 * c + n / 2 * 4", "halves attention batch"),
    ("rope.cu", "slot % cache.page", "(slot + 1) % cache.page", "attention decode"),
    ("short_conv.cu", "back <= place", "back < place", "short_conv"),
)


@on_the_emulator
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
