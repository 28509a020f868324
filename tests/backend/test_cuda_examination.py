"""CUDA's self-test: that every kernel is in it, on each generation, and that what computes wrong is refused by its name."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

pytest.importorskip("tests.support.needs_simt")

from pie_edge.backends.cuda import nvrtc
from pie_edge.backends.cuda.launch import Launch
from pie_edge.backends.cuda.session import Session
from pie_edge.errors import BackendUnavailable
from tests.backend import cuda_emulated
from tests.backend.cuda_emulated import ON_CARD, architecture, opened

pytestmark = pytest.mark.skipif(ON_CARD, reason="tells the emulator what to be, and breaks its kernels")
AMPERE, HOPPER = 86, 90
_ENTRY = re.compile(r"__global__ void(?:\s+__launch_bounds__\((?:[^()]|\([^()]*\))*\))?\s+(\w+)\(")
OTHERS: dict[int, set[str]] = {AMPERE: {"linear_wgmma"}, HOPPER: set()}
"""Kernels that a generation has no use for: Hopper multiplies bf16, and codes in groups of 16, as Ampere does."""


@pytest.mark.parametrize("generation", OTHERS)
def test_the_self_test_runs_every_kernel_of_a_generation(generation: int, monkeypatch: pytest.MonkeyPatch) -> None:
    launched: set[str] = set()
    enqueue = Session.enqueue

    def noted(session: Session, launch: Launch, *where: Any) -> None:
        launched.add(launch.kernel.name)
        enqueue(session, launch, *where)

    monkeypatch.setattr(Session, "enqueue", noted)
    with architecture(generation):
        asyncio.run(opened(self_test=True).close())
    there = {name for file, text in nvrtc.sources().items() if file.endswith(".cu") for name in _ENTRY.findall(text)}
    assert len(there) > 40
    assert there - launched == OTHERS[generation]


@pytest.mark.parametrize(
    ("generation", "file", "mutant", "named"),
    [
        (AMPERE, "halve.cu", ("sum += scaled;", "sum += 2.0f * scaled;"), "'linear', affine4"),
        (
            AMPERE,
            "attention_tile.cu",
            ("place_of(query, i % WIDTH)", "place_of(query, i % WIDTH ^ 1)"),
            "'attention', ",
        ),
        (AMPERE, "elementwise.cu", ("(row * page + slot % page)", "(row * page)"), "'copy_slots', "),
        (AMPERE, "nodes_cumsum.cu", ("i < lane; i++", "i + 1 < lane; i++"), "cumsum', "),
        (HOPPER, "linear_wgmma.cu", ("own.first + i / 2", "own.first + i % 2"), "'linear', f16"),
    ],
    ids=["halve", "attention", "copies", "nodes", "wgmma"],
)
def test_a_card_that_computes_wrong_what_no_emulator_judges_is_refused_by_the_kernel(
    generation: int, file: str, mutant: tuple[str, str], named: str
) -> None:
    changed = nvrtc.sources()[file].replace(*mutant)
    assert changed != nvrtc.sources()[file]
    compiler = cuda_emulated.compiler({**nvrtc.sources(), file: changed})
    with (
        architecture(generation),
        pytest.raises(BackendUnavailable, match=f"computes CUDA kernel '?.*{named}.*, wrong: "),
    ):
        opened(self_test=True, compile_kernels=compiler)
