"""Tuning on CUDA: which variants are tried, and that what is found is kept and used."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("tests.support.needs_simt")

from pie_edge.backend import Finding
from pie_edge.backends.cuda import api, nvrtc, probe, tune
from pie_edge.backends.cuda.backend import Live
from pie_edge.backends.cuda.device import Facts
from pie_edge.backends.cuda.tuning import TileVariant, Tuning
from pie_edge.backends.shared import examined, trial
from pie_edge.backends.shared import tune as shared_tune
from pie_edge.backends.shared.trial import Bench, Chain
from pie_edge.cli import app
from pie_edge.errors import BackendUnavailable
from tests.backend import cuda_emulated
from tests.backend.cuda_emulated import ON_CARD, architecture, opened
from tests.backend.opening_on_device import Played
from tests.simt import build

pytestmark = pytest.mark.skipif(ON_CARD, reason="plays with the emulator")


@pytest.fixture
def bench() -> Iterator[Bench]:
    backend = opened()
    yield tune.bench(backend._live.session)
    asyncio.run(backend.close())


def test_the_command_measures_all_variants_and_keeps_the_fastest(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Measurements are played: of each kernel one variant is the fastest, and each is measured with those taken before it."""
    default: Tuning = bench.default
    fastest = [replace(default, blocks=default.blocks // 2)]
    fastest.append(replace(fastest[-1], tile=TileVariant(2)))
    fastest.append(replace(fastest[-1], odd_bits=False))
    fastest.append(replace(fastest[-1], split=2 * default.split))
    order = [default, *fastest]

    def played(self: object, chain: Chain, tuning: Tuning) -> Played:
        rank = order.index(tuning) if tuning in order else -1
        return Played(lambda: 1e-3 * 0.5**rank)

    monkeypatch.setattr(shared_tune.Tuner, "_trial", played)
    monkeypatch.setattr(api, "LIBRARY", str(build.driver()))
    monkeypatch.setattr(nvrtc, "Compiler", lambda architecture, folder: cuda_emulated.ordinary)
    monkeypatch.setattr(probe, "probe", lambda: Finding(("SIMT CPU emulation",), software=True))
    monkeypatch.setenv("PIE_EDGE_CACHE", str(tmp_path))
    with pytest.raises(SystemExit) as ended:
        app.start(["tune", "--backend", "cuda", "--device", "SIMT"])
    assert not ended.value.code
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "tuning cuda (SIMT CPU emulation)"
    kernels = ["linear, 1 token", "linear, 64 tokens", "codes of 5 and 6 bits", "attention, a decode"]
    assert [line.partition(":")[0] for line in lines[1:]] == kernels
    assert shared_tune.remembered(bench, tmp_path) == fastest[-1]
    backend = opened(cache_dir=tmp_path)
    assert backend._live.tuning == fastest[-1]
    asyncio.run(backend.close())


def test_a_card_is_tuned_briefly_when_it_is_first_opened(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def played(bench: Bench, seconds: float, report: Callable[[shared_tune.Choice], None]) -> Tuning:
        asked.append(seconds)
        report(shared_tune.Choice("attention", {}, {}, "split 512", finished=len(asked) > 1))
        return replace(bench.default, split=512)

    monkeypatch.setattr(shared_tune, "tune", played)
    monkeypatch.setattr(Facts, "software", False)
    splits = []
    # The third one measures again what the second had no time to finish, and the last finds what was kept.
    for wanted in (False, True, True, True):
        backend = opened(cache_dir=tmp_path, tune=wanted)
        splits.append(backend._live.tuning.split)
        asyncio.run(backend.close())
    assert splits == [256, 512, 512, 512]
    assert asked == [shared_tune.SHORT_SECONDS] * 2


@pytest.mark.parametrize("right", [True, False])
def test_kernels_are_tested_before_they_are_measured_and_again_in_the_variants_that_are_taken(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, right: bool
) -> None:
    done: list[str] = []

    def tested(live: Live, test: examined.Test) -> None:
        done.append(f"tested with {live.tuning.split}")
        if live.tuning.split == 512 and not right:
            raise BackendUnavailable("a card computes wrong")

    def played(bench: Bench, *_: object) -> Tuning:
        done.append("measured")
        return replace(bench.default, split=512)

    monkeypatch.setattr(examined, "once", tested)
    monkeypatch.setattr(shared_tune, "tune", played)
    monkeypatch.setattr(Facts, "software", False)
    told: list[str] = []
    backend = opened(
        cache_dir=tmp_path, tune=True, self_test=True, progress=lambda done, total, what: told.append(what)
    )
    asyncio.run(backend.close())
    assert done == ["tested with 256", "measured", "tested with 512"]
    assert backend._live.tuning.split == (512 if right else 256)
    assert shared_tune.remembered(bench, tmp_path) == backend._live.tuning
    assert ("the usual variants are used, for with those measured a card computes wrong" in told) == (not right)


def test_a_variant_that_computes_otherwise_is_never_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two stages of columns on their way, of which a part is multiplied twice, and three, which are right."""
    text = nvrtc.sources()["linear_tile.cu"]
    changed = text.replace("weights[i / 2] + i % 2 * 2", "weights[i / 2]")
    assert changed != text
    broken = cuda_emulated.compiler({**nvrtc.sources(), "linear_tile.cu": changed})

    def compile_kernels(file: str, text: str, defines: tuple[str, ...]) -> bytes:
        return (broken if "STAGES=2" in defines else cuda_emulated.ordinary)(file, text, defines)

    monkeypatch.setattr(trial, "_WIDTH", 128)
    with architecture(86):
        backend = opened(compile_kernels=compile_kernels)
        bench = tune.bench(backend._live.session)
        told: list[shared_tune.Choice] = []
        tuner = shared_tune.Tuner(bench, 5.0, told.append)
        others = [replace(bench.default, tile=TileVariant(stages)) for stages in (2, 3)]
        tuner.best("linear", trial.always(trial.products(64, trial.FOURS)), bench.default, others)
        asyncio.run(backend.close())
    (choice,) = told
    assert choice.wrong == ["stages 2"] and "; stages 2 computes otherwise and is not used" in str(choice)
    assert set(choice.seconds) == {"default", "stages 3"}


def test_all_variants_give_the_results_that_they_are_compared_by(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_WIDTH", 128)
    monkeypatch.setattr(shared_tune, "ROUNDS", 1)
    told: list[shared_tune.Choice] = []
    shared_tune.tune(bench, report=told.append)
    assert [len(choice.seconds) for choice in told] == [3, 3, 2, 3]
    assert not any(choice.wrong for choice in told)


def test_a_broken_record_of_tuning_is_measured_anew(bench: Bench, tmp_path: Path) -> None:
    shared_tune.remember(bench.subject, tmp_path, bench.default)
    assert shared_tune.remembered(bench, tmp_path) == bench.default
    (record,) = tmp_path.glob("*.tuning")
    for text in ("[]", '{"tile": 3}', '{"tile": {"stages": 2}}'):
        record.write_text(text, encoding="utf-8")
        assert shared_tune.remembered(bench, tmp_path) is None


def test_tuning_measures_and_ends_with_something_usable(bench: Bench) -> None:
    """Nothing is played here: these are times of the emulator."""
    told: list[shared_tune.Choice] = []
    found = shared_tune.tune(bench, seconds=0.5, report=told.append)
    assert isinstance(found, Tuning)
    assert all(seconds > 0 for choice in told for seconds in choice.seconds.values())
    assert len(told) == 4
