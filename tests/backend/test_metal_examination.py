"""Metal's self-test: that every kernel is in it, with each tuning, and that what computes wrong is refused by its name."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("tests.support.needs_mlx")
pytest.importorskip("tests.support.needs_simt")

import mlx.core as mx

from pie_edge.backends.metal.launch import FOLDER, Launch
from pie_edge.backends.metal.ops import linear
from pie_edge.backends.metal.tuning import Tuning
from pie_edge.errors import BackendUnavailable
from tests.backend.metal_emulated import Edit, Emulator, changed, emulator, opened


@pytest.mark.parametrize("tuning", [Tuning(), Tuning.ours()], ids=["usual", "ours"])
def test_the_self_test_runs_every_kernel_and_mlx_s_products(tuning: Tuning, monkeypatch: pytest.MonkeyPatch) -> None:
    launched, together, by_mlx = set[str](), set[Any](), list[tuple[bool, int]]()

    def launch(asked: Launch) -> Sequence[mx.array]:
        launched.add(asked.kernel.name)
        if asked.kernel.name == "linear":
            together.add(dict(asked.template)["TOKENS"])
        return emulator(asked)

    product = linear.by_mlx

    def noted(x: mx.array, matrix: Any) -> mx.array:
        by_mlx.append((matrix.form.dense is None, x.shape[0]))
        return product(x, matrix)

    monkeypatch.setattr(linear, "by_mlx", noted)
    asyncio.run(opened(self_test=True, tuning=tuning, launcher=launch).close())
    assert {file.stem for file in FOLDER.glob("*.metal")} <= launched
    assert together == {1, 2, 4, 8}
    assert any(name.startswith("epilogue_") for name in launched)
    if tuning == Tuning():
        assert {(codes, rows >= 16) for codes, rows in by_mlx} >= {(True, True), (False, True)}


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        (changed("xs[down + 16 * n][i]", "xs[down + 15 * n][i]"), "'linear', "),
        (changed("own[i] *= keep", "own[i] *= learn"), "'gated_delta', "),
        (changed("min(max(k, 1u), extent)", "min(max(k, 1u) + 1, extent)"), "node.pack_bits', "),
    ],
    ids=["tiles", "the delta rule", "nodes"],
)
def test_what_computes_wrong_is_refused_by_the_kernel(edit: Edit, named: str) -> None:
    with pytest.raises(BackendUnavailable, match=f"computes Metal kernel '?.*{named}.*, wrong: "):
        opened(self_test=True, launcher=Emulator(edit))
