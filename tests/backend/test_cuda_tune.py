"""Tuning on CUDA: which variants are tried, that what is found is kept and used, and that each of them computes right."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("tests.support.needs_simt")

from pie_edge.backend import Finding
from pie_edge.backends.cuda import api, nvrtc, probe, tune
from pie_edge.backends.cuda.device import Facts
from pie_edge.backends.cuda.tuning import TileVariant, Tuning
from pie_edge.backends.shared import tune as shared_tune
from pie_edge.backends.shared.trial import Bench, Chain
from pie_edge.cli import app
from tests.backend import cuda_emulated
from tests.backend.cuda_cases import GATED_TILE
from tests.backend.cuda_emulated import ON_CARD, architecture, opened
from tests.backend.device_cases import check
from tests.backend.opening_on_device import Played
from tests.simt import build

pytestmark = pytest.mark.skipif(ON_CARD, reason="plays with the emulator")
CASES = ("linear affine4g32-f16-min 1 rows", "halves attention long decode", GATED_TILE)


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

    def played(bench: Bench, seconds: float) -> Tuning:
        asked.append(seconds)
        return replace(bench.default, split=512)

    monkeypatch.setattr(shared_tune, "tune", played)
    monkeypatch.setattr(Facts, "software", False)
    splits = []
    for wanted in (False, True, True):  # the last one finds what the one before kept
        backend = opened(cache_dir=tmp_path, tune=wanted)
        splits.append(backend._live.tuning.split)
        asyncio.run(backend.close())
    assert splits == [256, 512, 512]
    assert asked == [shared_tune.SHORT_SECONDS]


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


@pytest.mark.parametrize("generation", [75, 86, 90])
def test_every_variant_that_is_tried_computes_right(generation: int) -> None:
    tried: list[Tuning] = []

    def keep(self: object, kernel: str, given: object, default: Tuning, others: Iterator[Tuning]) -> Tuning:
        tried.extend(others)
        return default

    with architecture(generation), pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_tune.Tuner, "best", keep)
        backend = opened()
        shared_tune.tune(tune.bench(backend._live.session))
        asyncio.run(backend.close())
        for tuning in tried:
            backend = opened(tuning=tuning)
            for case in CASES:
                check(backend, case)
            asyncio.run(backend.close())
    assert len(tried) == 2 + (5 if generation == 90 else 2) + 1 + 2
