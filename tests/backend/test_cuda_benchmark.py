"""The benchmark of a card runs whole on the emulator, over a small checkpoint out of nothing."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

pytest.importorskip("tests.support.needs_simt")

from benchmarks import cuda, seeded
from benchmarks.engines import EMULATED, Stream, open_engine
from tests.backend.cuda_emulated import ON_CARD

pytestmark = pytest.mark.skipif(ON_CARD, reason="a card is measured by the benchmark itself")
SIZE = "tiny"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cuda.checkpoint(None, tmp_path_factory.mktemp("seeded"), SIZE)


def test_a_checkpoint_is_the_same_whenever_it_is_made(checkpoint: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.gguf"
    seeded.write(again, seeded.SIZES[SIZE])
    assert again.read_bytes() == checkpoint.read_bytes()
    assert 1e9 < seeded.SIZES["billion"].parameters < 3e9


def test_every_workload_is_measured_and_told(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--model", str(checkpoint), "--backend", EMULATED, "--rounds", "1", "--tokens", "2", "--prompt", "40"]
    cuda.main(words)
    told = capsys.readouterr().out
    assert "cuda (SIMT CPU emulation)" in told
    for workload in ("decode", "prefill of 40", "16 streams"):
        rate = re.search(rf"\| {workload} \| (\S+) \(", told)
        assert rate is not None and float(rate[1]) > 0
    assert re.search(r"a decode reads \d+\.\d GB/s\n", told)


@pytest.mark.parametrize(("together", "status"), [([398.0, 400.0, 401.0], 0), ([398.0, 399.0, 900.0], 1)])
def test_sixteen_streams_give_four_times_one_s_tokens_by_the_median_or_it_fails(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, together: list[float], status: int
) -> None:
    found = {"decode": [100.0, 100.0, 100.0], "16 streams": together}
    monkeypatch.setattr(cuda, "measure", lambda setup: cuda.Figures("cuda (a card)", found))
    assert cuda.main(["--model", str(checkpoint)]) == status


@pytest.mark.parametrize(
    ("device", "card"),
    [("NVIDIA L4", "L4"), ("NVIDIA L40S", ""), ("NVIDIA GeForce RTX 4090", "RTX 4090"), ("NVIDIA H200 NVL", "H200")],
)
def test_a_known_card_is_told_by_its_whole_name(checkpoint: Path, device: str, card: str) -> None:
    found = {"decode": [100.0], "16 streams": [400.0]}
    told = cuda.tell(cuda.Figures(f"cuda ({device})", found), cuda.Setup(checkpoint, "cuda", 1, 2, 40))
    assert told.endswith(f"of the {card}'s" if card else "GB/s")


def test_it_says_what_the_reference_says(checkpoint: Path) -> None:
    async def answer(backend: str) -> list[int]:
        async with open_engine(checkpoint, backend) as opened:
            return await Stream(opened.engine.open_space("seeded", 0), 30).generate(list(range(20)), 8)

    assert asyncio.run(answer(EMULATED)) == asyncio.run(answer("reference"))
