"""Whether MLX's product or ours is taken, by what was measured on a device."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tests.support.needs_mlx")

import mlx.core as mx

from pie_edge.backend import Backend, Stop, Stopped
from pie_edge.backends.metal import device, tune
from pie_edge.backends.metal.contests import Contest, contests
from pie_edge.backends.metal.device import Facts, Mode
from pie_edge.backends.metal.epilogues import nodes
from pie_edge.backends.metal.launch import Launch
from pie_edge.backends.metal.memory import host
from pie_edge.backends.metal.ops import expert_linear, products
from pie_edge.backends.metal.tuning import EXTENTS, ROWS, Tuning, widened_bytes
from pie_edge.backends.metal.weights import Form, Matrix
from pie_edge.errors import BackendError, UsageError
from pie_edge.program.encodings import Dense, DType
from pie_edge.program.ops import Role, Value
from tests.backend import device_cases, expert_cases, openers

GPU = Facts("Apple M9", "0.32.4", True, 8 << 30, 4 << 30)


def played(faster: Callable[[int], bool]) -> tune.Seconds:
    """MLX's is twice as fast for as many rows or entries as ``faster`` says, else ours is."""

    def seconds(contest: Contest, size: int, by_mlx: bool) -> float:
        return 1e-3 if by_mlx == faster(size) else 2e-3

    return seconds


@pytest.mark.parametrize("most", [0, 1, 16, 64])
def test_the_faster_product_is_taken_for_each_number_of_rows_and_remembered(tmp_path: Path, most: int) -> None:
    said: list[str] = []
    found = tune.measured(lambda: None, said.append, played(lambda rows: rows <= most))
    assert found.by_mlx == found.dense_by_mlx == found.experts_by_mlx == tuple(rows <= most for rows in ROWS)
    assert len(said) == 3 * len(ROWS) + len(nodes.KINDS) * len(EXTENTS)
    assert tune.remembered(GPU, tmp_path) is None
    tune.record(GPU, tmp_path).keep(found.document())
    assert tune.remembered(GPU, tmp_path) == found


def test_what_is_a_little_faster_replaces_no_default() -> None:
    found = tune.measured(lambda: None, lambda line: None, lambda contest, size, by_mlx: 1.0 - 0.02 * by_mlx)
    assert found == Tuning()


@pytest.mark.parametrize("node", sorted(nodes.KINDS))
def test_who_finds_the_order_of_rows_goes_by_their_length(node: str) -> None:
    found = tune.measured(lambda: None, lambda line: None, played(lambda entries: entries > EXTENTS[0]))
    assert not any(found.is_mlx_node(node, entries) for entries in (1, EXTENTS[0]))
    assert all(found.is_mlx_node(node, entries) for entries in (EXTENTS[0] + 1, 10**6))
    assert not any(Tuning.ours().is_mlx_node(node, entries) for entries in (1, 10**6))


def test_rows_between_those_measured_go_by_the_next_and_rows_above_by_the_last() -> None:
    codes = Matrix(Form(64, None, 4, 64, biased=True), mx.zeros((1, 8), mx.uint32))
    tuning = Tuning((True, False, True, False))
    assert [tuning.is_mlx(codes, rows) for rows in (1, 2, 4, 5, 16, 17, 64, 500)] == [
        True,
        *[False] * 2,
        True,
        True,
        *[False] * 3,
    ]


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"by_mlx": [True] * 4},
        Tuning().document() | {"dense_by_mlx": [1, 0, 0, 0]},
        Tuning().document() | {"sort_by_mlx": [True] * 4},
    ],
)
def test_what_was_kept_by_another_version_or_is_damaged_is_measured_again(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    tune.record(GPU, tmp_path).keep(document)
    assert tune.remembered(GPU, tmp_path) is None


def test_prompts_over_dense_matrices_go_to_mlx_but_not_those_that_widened_would_fill_the_memory() -> None:
    def chosen(rows: int) -> list[bool]:
        dense = Matrix(Form(1024, DType.BF16), mx.zeros((rows, 1024), mx.bfloat16))
        return [Tuning().is_mlx(dense, count) for count in (1, 16, 17, 512)]

    assert chosen(2048) == [False, False, True, True]
    assert chosen(1 << 17) == [False] * 4
    values = [Value("w", Role.WEIGHT, DType.F32, (rows, 1024), Dense(DType.BF16)) for rows in (16, 2048, 1 << 17)]
    assert widened_bytes(values) == 2048 * 1024 * 4
    assert widened_bytes(values[2:]) == 0


def test_what_is_measured_is_the_same_by_mlx_and_by_our_kernels() -> None:
    """On the emulator and MLX's CPU device, of the smallest sizes."""
    pytest.importorskip("tests.support.needs_simt")
    from tests.backend.metal_emulated import emulator

    for contest in contests():
        given = contest.given(min(contest.sizes[0], 301))
        ours, theirs = (host(contest.chain(given, by_mlx, emulator)) for by_mlx in (False, True))
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, err_msg=contest.what)
        assert np.abs(ours).max() > 0


@pytest.mark.parametrize("field", ["by_mlx", "dense_by_mlx", "experts_by_mlx"])
def test_products_are_measured_with_more_matrices_than_caches_hold(monkeypatch: pytest.MonkeyPatch, field: str) -> None:
    """As a model's are, each of which is read once a step: else a decode would seem faster than memory is."""
    met: list[Matrix] = []

    def noted(x: mx.array, matrix: Matrix) -> mx.array:
        met.append(matrix)
        return x

    def routed(x: mx.array, experts: mx.array, order: mx.array, matrix: Matrix, count: int) -> mx.array:
        return noted(x, matrix)

    monkeypatch.setattr(products, "by_mlx", noted)
    monkeypatch.setattr(expert_linear, "by_mlx", routed)
    (contest,) = (one for one in contests() if one.field == field)
    given = contest.given(1)
    for _ in range(12):
        contest.chain(given, True, lambda asked: [])
    apart = next(count for count in range(1, len(met)) if met[count] is met[0])
    assert sum(matrix.nbytes for matrix in met[:apart]) > 48 << 20


def test_a_measurement_that_is_given_up_ends() -> None:
    stop = Stop()
    stop.ask()
    with pytest.raises(Stopped):
        tune.measured(stop.look, lambda line: None, played(lambda rows: True))


@pytest.mark.parametrize("rows", [1, 7])
def test_products_go_to_mlx_where_the_tuning_says_so_and_the_matrix_lies_as_it_takes_it(rows: int) -> None:
    launched: list[str] = []

    def launch(asked: Launch) -> Any:
        launched.append(asked.kernel.name)
        raise RuntimeError("played: there is no GPU")

    options = {"mode": Mode.KERNELS, "launcher": launch, "exact": True}
    every = (True,) * 4
    backend = openers.metal(**options, tuning=Tuning(every, every, every))
    device_cases.check(backend, f"linear bf16 {rows} rows")
    device_cases.check(backend, f"linear affine4g32-f16-min {rows} rows")
    device_cases.check(backend, f"linear affine8g32-f16-min {rows} rows")
    assert not launched
    asyncio.run(backend.close())
    for name, tuning in (
        ("affine4g16-f16-min", Tuning((True,) * 4)),
        ("affine4g32-f16-min", Tuning((False,) * 4)),
        ("bf16", Tuning((True,) * 4, (False,) * 4)),
    ):
        backend = openers.metal(**options, tuning=tuning)
        with pytest.raises(Exception, match="played"):
            device_cases.check(backend, f"linear {name} {rows} rows")
        asyncio.run(backend.close())
    assert launched == ["linear"] * 3


def test_products_of_experts_go_to_mlx_where_the_tuning_says_so_and_codes_lie_as_it_takes_them() -> None:
    """Many of them in the experts' order: a prefill's 122 pairs, and 66 that each have a row of their own."""
    launched: list[str] = []

    def launch(asked: Launch) -> Any:
        launched.append(asked.kernel.name)
        raise RuntimeError("played: there is no GPU")

    def opened(*by_mlx: bool) -> Backend:
        tuning = Tuning(experts_by_mlx=by_mlx)
        return openers.metal(mode=Mode.KERNELS, launcher=launch, exact=True, tuning=tuning)

    backend = opened(True, True, True, True)
    for name in (*expert_cases.PRODUCTS, "one of seven", "some of seven"):
        device_cases.check(backend, f"expert_linear, {name}")
    device_cases.check(backend, "expert_linear affine8g64-f16-min, a prefill")
    assert not launched
    asyncio.run(backend.close())
    for by_mlx, name in ((False, "affine8g64-f16-min"), (True, "affine4g16-f16-z8"), (True, "bf16"), (True, "f32")):
        backend = opened(*(by_mlx,) * 4)
        with pytest.raises(Exception, match="played"):
            device_cases.check(backend, f"expert_linear {name}, a prefill")
        asyncio.run(backend.close())
    assert launched == ["expert_linear"] * 4


def test_a_processor_has_nothing_to_tune(tmp_path: Path) -> None:
    if tune.device.facts().gpu:
        pytest.skip("says something of MLX's CPU device")
    with pytest.raises(UsageError, match="kernels by hand need a GPU"):
        tune.tune_device("", tmp_path, print, Stop())


def test_a_tuning_that_could_not_be_kept_says_so_before_it_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "chosen", lambda name: GPU)
    monkeypatch.setattr(tune, "measured", lambda *given: pytest.fail("it measures"))
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(
        BackendError, match=r"Apple M9 can't be kept in .*cache \(it can't be written\).*PIE_EDGE_CACHE"
    ):
        tune.tune_device("", tmp_path / "cache", print, Stop())


def test_a_first_opening_on_a_gpu_measures_once_says_so_and_takes_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, said = Tuning((True,) * 4, (False,) * 4), list[str]()
    monkeypatch.setattr(device, "facts", lambda: GPU)
    monkeypatch.setattr(device, "enter", lambda facts, limit: None)
    monkeypatch.setattr(tune, "measured", lambda look, report: found)

    def opened(**options: Any) -> Tuning:
        said.clear()
        backend = openers.metal(
            mode=Mode.OPS, cache_dir=tmp_path, progress=lambda done, total, what: said.append(what), **options
        )
        asyncio.run(backend.close())
        tuning = backend._live.tuning  # type: ignore[attr-defined]
        assert isinstance(tuning, Tuning)
        return tuning

    assert (opened(tune=False), said) == (Tuning(), [])
    assert (opened(tune=True), said) == (found, ["measuring variants of Metal's kernels on Apple M9 (once)"])
    monkeypatch.setattr(tune, "measured", None)
    assert (opened(tune=True), said) == (found, [])
