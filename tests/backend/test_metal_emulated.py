"""The Metal backend's kernels on the emulator, as MLX would give them to Metal: each against the NumPy reference, in any order of
threads, with no race for threadgroup memory and no pointer into another memory; mutants are caught, and models generate."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tests.support.needs_mlx")
pytest.importorskip("tests.support.needs_simt")

import mlx.core as mx
import numpy as np

from pie_edge.backend import Backend
from pie_edge.backends.metal.launch import Kernel, Launch
from pie_edge.backends.metal.memory import host
from pie_edge.backends.metal.ops import MODULES, linear
from pie_edge.backends.metal.weights import Form, Matrix
from pie_edge.errors import DeviceLost
from pie_edge.program import trace as ops
from pie_edge.program.encodings import Affine, DType
from pie_edge.program.node_reference import run_nodes
from pie_edge.program.trace import Trace
from pie_edge.sampling import parse
from tests.backend import append_cases, device_cases, test_engine
from tests.backend.cases import Case, rows_step
from tests.backend.device import assert_close, run_case
from tests.backend.device_cases import check
from tests.backend.families_on_device import check_family
from tests.backend.metal_emulated import BACKWARD, SHUFFLED, Edit, Emulator, changed, opened, without_barrier
from tests.simt import build, msl
from tests.support.epilogue_device import Session
from tests.support.epilogues import Wire, random_arrays

NAMES = (
    *device_cases.AWKWARD,
    "linear f16 7 rows",
    "linear lookup4g32-bf16-t15a75dd5 61 rows",
    "embed bf16",
    "embed f16",
    "expert_linear f16, a prefill",
    "route 5 of 5 11 rows",
    "adapter_linear 8x576 1 rows",
    "adapter_linear 33x67 8 rows",
    "append neox",
    "append interleaved in part",
    *append_cases.ODD,
    "gated_delta wide",
    "halves attention eight heads share",
)
"""A few of each kind, and what is of this backend's kernels; numbers are f32, f16 or bf16, as names say."""


@pytest.fixture(scope="module")
def emulator() -> Emulator:
    return Emulator()


@pytest.fixture(scope="module")
def backend(emulator: Emulator) -> Iterator[Backend]:
    found = opened(exact=True, launcher=emulator)
    yield found
    asyncio.run(found.close())


@pytest.mark.parametrize(("bits", "rows"), [(4, 1), (4, 40), (8, 3)])
def test_codes_as_mlx_snapshots_have_them_are_multiplied(backend: Backend, bits: int, rows: int) -> None:
    """Scales and biases are bf16."""
    case = Case(Trace("snapshot"), np.random.default_rng(bits))
    case.step(*rows_step(rows, rows))
    x, weight = (
        case.row_state("x", case.normal(rows, 128)),
        case.weight("w", (50, 128), Affine(bits, 64, DType.BF16, None)),
    )
    case.results = (ops.linear(case.trace, x, weight),)
    case.tolerance = 1e-4
    found = asyncio.run(run_case(backend, case))
    for output, expected in case.expected().items():
        assert_close(found[output], expected, case)


@pytest.mark.parametrize(("rows", "columns"), [(1, 4), (3, 2), (5, 1), (7, 1), (3, 4), (1, 8)])
def test_products_of_fewer_entries_than_an_array_has_are_their_rows(
    emulator: Emulator, rows: int, columns: int
) -> None:
    noise = np.random.default_rng(rows + columns)
    x, w = (noise.standard_normal((count, columns)).astype(np.float32) for count in (rows, 6))
    (y,) = linear.by_hand(emulator, mx.array(x), Matrix(Form(columns, DType.F32), mx.array(w)), None)
    assert y.shape == (rows, 6)
    np.testing.assert_allclose(host(y), x @ w.T, rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def texts(backend: Backend, emulator: Emulator) -> dict[Any, str]:
    """Of all cases' kernels."""
    for name in NAMES:
        check(backend, name)
    return emulator.texts


def checked(name: str, launcher: Emulator) -> None:
    """A case on a device of its own."""
    backend = opened(exact=True, launcher=launcher)
    try:
        check(backend, name)
    finally:
        asyncio.run(backend.close())


def reduced(launcher: Emulator) -> None:
    """An epilogue that finds the best and adds up, both twice, against the node reference."""
    wire = Wire()
    x = wire.add("logits")
    y = wire.add("neg", x)
    found = [wire.add(kind, z) for kind in ("reduce_argmax", "reduce_sum") for z in (x, y)]
    program, arrays = random_arrays(parse(wire.text(*found), vocabulary=301, rows=1), [], 2, 1, seed=3)
    session = Session(opened(launcher=launcher))
    try:
        answers, wanted = session.run(program, arrays), run_nodes(program, arrays)
        for name, want in wanted.items():
            np.testing.assert_allclose(answers[name], want, rtol=1e-5, atol=1e-5)
    finally:
        session.close()


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_agrees_with_the_reference(backend: Backend, name: str) -> None:
    check(backend, name)


def test_all_kernels_are_among_them(texts: dict[Any, str]) -> None:
    named = (value for module in MODULES.values() for value in vars(module).values())
    assert {launched.name for launched, *_ in texts} == {k.name for k in named if isinstance(k, Kernel)}


@pytest.mark.parametrize(("order", "seed"), [(BACKWARD, 0), (SHUFFLED, 1)])
def test_the_order_of_threads_changes_nothing(order: int, seed: int) -> None:
    for name in device_cases.AWKWARD:
        checked(name, Emulator(order=order, seed=seed))


NORM, TILE, DECODE = "rms_norm 576x1 1 rows", "linear affine6g64-f16-min 61 rows", "halves attention long decode"
BATCH, SHARED = "attention batch", "halves attention eight heads share"
ROUTE, ADAPTED = "route 8 of 128 11 rows", "adapter_linear 33x67 8 rows"


@pytest.mark.parametrize("name", [NORM, TILE, DECODE, BATCH, SHARED, "add_rms_norm 10 7 rows"])
def test_threads_never_race_for_threadgroup_memory(name: str) -> None:
    checked(name, Emulator(flags=build.TRACED))


@pytest.mark.skipif(not msl.can_check(), reason=f"address spaces are checked by {msl.CHECKER}, which isn't here")
class TestAddressSpaces:
    def test_no_kernel_mixes_them(self, texts: dict[Any, str]) -> None:
        epilogues = Emulator(flags=build.TRACED)
        reduced(epilogues)
        every = {*texts.values(), *epilogues.texts.values()}
        assert not [said for text in every if (said := msl.checked(text))]

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ("threadgroup float* room", "device float* room"),
            ("float squares = 0.0f;", "float squares = 0.0f; threadgroup const float* from = x;"),
            ("float squares = 0.0f;", "float squares = 0.0f; thread float* from = room;"),
            ("float squares = 0.0f;", "float squares = 0.0f; const constant float* from = x;"),
            ("y[row * WIDTH + i] =", "x[row * WIDTH + i] ="),
        ],
    )
    def test_a_pointer_into_another_memory_is_refused(self, old: str, new: str) -> None:
        launcher = Emulator()
        checked(NORM, launcher)
        (text,) = launcher.texts.values()
        assert not msl.checked(text)
        assert old in text
        assert "error" in msl.checked(text.replace(old, new))


# Of a norm's two the first is for who adds up twice, which no norm does.
BARRIERS = [(NORM, 1), *((TILE, n) for n in range(2)), *((BATCH, n) for n in range(4))]
MUTANTS = (
    (NORM, "i < WIDTH; i += THREADS) y", "i <= WIDTH; i += THREADS) y"),
    ("linear affine4g32-f16-min 7 rows", "unit < (COLUMNS + 7) / 8", "unit <= (COLUMNS + 7) / 8"),
    ("linear affine4g32-f16-min 7 rows", "token + t < tokens", "token + t <= tokens"),
    ("linear affine4g32-f16-min 7 rows", "min(token + t, tokens - 1)", "(token + t)"),
    ("linear affine5g16-f32-min 7 rows", "shift + BITS > 32", "shift + BITS > 33"),
    (TILE, "from_w[n] = ws[across + 8 * n][i]", "from_w[n] = ws[across + 8 * n][i ^ 1]"),
    (TILE, "row < N && at < tokens", "row <= N && at < tokens"),
    ("embed affine6g16-f32-z32", "(columns / GROUP)", "(columns / GROUP + 1)"),
    ("attention prefill after past", "key <= row_index[row]", "key < row_index[row]"),
    ("attention window", "< WINDOW", "<= WINDOW"),
    (BATCH, "simd_broadcast(slot, j)", "simd_broadcast(slot, ushort(j ^ 1))"),
    (BATCH, "simd_broadcast(weights[n], j)", "simd_broadcast(weights[n], ushort(31 - j))"),
    (BATCH, "simd_broadcast(page, j)", "simd_broadcast(page, ushort(32))"),
    (BATCH, "entry = min(key / PAGE, entries - 1)", "entry = key / PAGE"),
    (SHARED, "peaks[part][n] = peak[n]", "peaks[part][0] = peak[n]"),
    ("append neox", "pair + ROTARY / 2", "pair + ROTARY / 2 - 1"),
    ("short_conv", "back <= within", "back < within"),
    ("gated_delta wide", "lane == 0 && !past", "lane == 1 && past"),
    ("expert_linear f16, a prefill", "experts[pair], token", "experts[pair ^ 1], token"),
    (ROUTE, "other == best && there < place", "other == best && there > place"),
    (ROUTE, "lane == place % 32) left", "lane == place % 31) left"),
    (ROUTE, "NORMALISED ? taken : total", "NORMALISED ? total : taken"),
    (ROUTE, "shares[j / 32] / whole", "shares[0] / whole * float(j + 1)"),
    (ADAPTED, "adapter - 1", "adapter"),
    (ADAPTED, "i < COLUMNS", "i <= COLUMNS"),
    (ADAPTED, "adapter != 0", "adapter > 1"),
)
"""A case, what is replaced in its kernel, and by what."""


@pytest.mark.parametrize(("name", "number"), BARRIERS)
def test_a_missing_barrier_is_caught(name: str, number: int) -> None:
    with pytest.raises(DeviceLost, match="a race in shared memory"):
        checked(name, Emulator(without_barrier(number), build.TRACED))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant[1])
def test_a_mutant_is_caught(mutant: tuple[str, str, str]) -> None:
    """What the other tests find is found: an index that is one off, a lane that isn't meant."""
    name, old, new = mutant
    launcher = Emulator(changed(old, new))
    with pytest.raises((AssertionError, DeviceLost)) as caught:
        checked(name, launcher)
    assert any(old in text for text in launcher.texts.values()), caught.value


def test_an_epilogue_that_reduces_means_what_the_reference_says_without_a_race() -> None:
    reduced(Emulator(flags=build.TRACED))


@pytest.mark.parametrize(
    "edit",
    [
        *map(without_barrier, range(4)),
        changed("other = simd_shuffle_xor(value, by)", "other = simd_shuffle_xor(value, ushort(by / 2))"),
        changed("value + simd_shuffle_xor(value, by)", "value + simd_shuffle_xor(value, ushort(by - 1))"),
        changed("room[simdgroups + simdgroup] = index", "room[simdgroups] = index"),
    ],
)
def test_a_mutant_of_an_epilogue_is_caught(edit: Edit) -> None:
    with pytest.raises((AssertionError, DeviceLost)):
        reduced(Emulator(edit, build.TRACED))


def test_a_text_that_is_not_what_the_rules_say_is_refused() -> None:
    """Strides are a parameter that MLX adds, and that no kernel here asks for."""
    ones = mx.ones(8)
    body = "y[thread_position_in_grid.x] = x[thread_position_in_grid.x * {0}];"
    shape = (((8,), mx.float32),)

    def launched(factor: str) -> Launch:
        return Launch(Kernel("odd", ("x",), ("y",), (), body.format(factor)), (ones,), shape, (8, 1, 1), (8, 1, 1))

    assert Emulator()(launched("1"))[0].tolist() == [1.0] * 8
    with pytest.raises(AssertionError):
        Emulator()(launched("x_strides[0]"))


def test_the_engine_generates_the_references_tokens() -> None:
    """Keys and values are halves, as users have them."""

    async def test() -> None:
        backend = await asyncio.to_thread(opened, memory=512 << 20)
        async with test_engine.engine_on(backend) as engine:
            prompts = test_engine.PROMPTS
            found = [await test_engine.greedy(engine.open_space("a", 0), prompt, 6) for prompt in prompts]
            assert found == [test_engine.expected(prompt, 6) for prompt in prompts]

    test_engine.run(test)


@pytest.mark.parametrize("family", ["qwen3-moe", "qwen3.5"])
def test_a_familys_checkpoint_says_what_transformers_says(family: str, tmp_path: Path) -> None:
    with asyncio.Runner() as runner:
        backend = opened(exact=True)
        check_family(family, (runner, backend), tmp_path)
        runner.run(backend.close())
