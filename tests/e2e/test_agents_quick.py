"""The benchmark of agents as it is started, on a random model with processes of its own: a smoke run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import agents
from benchmarks.calling.compare import INFERLET, REQUESTS
from benchmarks.calling.script import QUICK, SHAPES
from tests.support.family_checkpoints import make_weights, write_gguf
from tests.support.family_configs import LLAMA


def test_a_quick_run_measures_every_point_and_writes_its_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = LLAMA | {"vocab_size": 259, "max_position_embeddings": 1024}
    model = write_gguf(tmp_path / "random.gguf", config, make_weights(config), byte_tokens=True)
    page, figures = tmp_path / "page.md", tmp_path / "figures.json"
    page.write_text(f"before\n{agents.BEGIN}\nold\n{agents.END}\nafter\n", encoding="utf-8")
    words = ["--quick", "--model", str(model), "--backend", "cpu", "--threads", "1"]
    assert agents.main([*words, "--json", str(figures), "--page", str(page)]) == 0
    found = json.loads(figures.read_text(encoding="utf-8"))
    points = {(point["shape"], point["calls"], point["together"]) for point in found["points"]}
    alone = {(shape, calls, 1) for shape in SHAPES for calls in QUICK.calls}
    assert points == alone | {(shape, calls, QUICK.together) for shape in SHAPES for calls in QUICK.together_calls}
    assert all({INFERLET, REQUESTS} <= set(point["seconds"]) for point in found["points"])
    assert all(list(rung) == [str(count) for count in QUICK.agents] for rung in found["ladder"].values())
    written = page.read_text(encoding="utf-8")
    assert written.startswith("before\n") and written.endswith("after\n") and "old" not in written
    assert "| ReACT | 5 |" in written and "| + masked |" in written
    assert written.split(agents.BEGIN)[1].split(agents.END)[0].strip() in capsys.readouterr().out
