"""``pie-edge model show`` of tiny models: what it says before loading, beside what loading takes."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import save_file

from pie_edge import runtime
from pie_edge.backend_choice import choose, probe
from pie_edge.cli import app
from pie_edge.config import load
from pie_edge.model import registry
from pie_edge.weights.checkpoint import open_checkpoint
from tests.support.family_checkpoints import make_weights, write_gguf
from tests.support.family_configs import CONFIGS

Show = Callable[..., tuple[int, str, str]]
CONFIG = CONFIGS["qwen2"] | {"vocab_size": 259}
BACKENDS = [
    "cpu",
    pytest.param("vulkan", marks=pytest.mark.skipif(not probe("vulkan").devices, reason="needs a Vulkan device")),
]
MARGIN = 4 << 20
"""Bytes between what is said and what loading took: Programs that are compiled later, and the staging ring."""


@pytest.fixture
def show(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Show:
    monkeypatch.setenv("PIE_EDGE_CONFIG", str(tmp_path / "config.toml"))
    (tmp_path / "config.toml").touch()
    monkeypatch.setenv("PIE_EDGE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PIE_EDGE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIE_EDGE_MEMORY", "256 MiB")

    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            app.start(["model", *words])
        told = capsys.readouterr()
        return int(ended.value.code or 0), told.out, told.err

    return run


def gguf(folder: Path, **more: Any) -> Path:
    return write_gguf(folder / "tiny.gguf", CONFIG, make_weights(CONFIG), byte_tokens=True, **more)


def sharded(folder: Path) -> Path:
    """A snapshot in two files with an index, as Hugging Face cuts large ones."""
    snapshot, weights = folder / "snapshot", make_weights(CONFIG)
    snapshot.mkdir()
    (snapshot / "config.json").write_text(json.dumps(CONFIG))
    shards = {name: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, name in enumerate(weights)}
    for shard in set(shards.values()):
        save_file({name: weights[name] for name in weights if shards[name] == shard}, snapshot / shard)
    (snapshot / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    return snapshot


async def loaded(path: Path, backend: str) -> int:
    """Bytes in use once the model is loaded as ``run`` loads it."""
    settings, choice = load({"backend": backend}).settings, choose(backend)
    with open_checkpoint(path) as checkpoint:
        facts = registry.facts(checkpoint)
        spec, family = registry.read(facts), registry.family(facts)
        engine = await runtime._open_engine(
            "tiny", checkpoint, spec, family, choice, *choice.devices, settings, runtime._silent
        )
        used: int = engine._device._backend.footprint((), (), None)
        await engine.close()
    return used


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("made", [gguf, sharded])
def test_what_is_said_before_loading_is_what_loading_takes(
    show: Show, tmp_path: Path, made: Callable[[Path], Path], backend: str
) -> None:
    path = made(tmp_path)
    status, out, _ = show("show", str(path), "--backend", backend, "--json")
    assert status == 0
    file = sum(w.nbytes for w in make_weights(CONFIG).values())
    assert file < json.loads(out)["bytes"] < file + (1 << 16)
    said = json.loads(out)["needs"]
    assert said["backend"] == backend
    assert said["fits"]
    used = asyncio.run(loaded(path, backend))
    pieces = said["weight_bytes"] + said["pool_bytes"] + said["logits_bytes"] + said["state_bytes"]
    assert pieces <= used <= said["total_bytes"] == pieces + said["working_bytes"]
    assert said["total_bytes"] - used < (16 << 20 if backend == "vulkan" else 0) + MARGIN
    assert file <= said["weight_bytes"] <= 1.3 * file + (64 << 10)
    layers, heads, width = CONFIG["num_hidden_layers"], CONFIG["num_key_value_heads"], 16
    assert said["kv_bytes_per_token"] | {"kept_as": ""} == {
        "f16": 4 * layers * heads * width,
        "f32": 8 * layers * heads * width,
        "kept_as": "",
    }
    assert said["context_tokens"] == said["most_context_tokens"] == CONFIG["max_position_embeddings"]


def test_an_imported_name_is_told_for_people_line_by_line(show: Show, tmp_path: Path) -> None:
    assert show("import", str(gguf(tmp_path)), "--name", "mine")[0] == 0
    status, out, _ = show("show", "mine", "--backend", "cpu")
    assert status == 0
    lines = dict(line.split("  ", 1) for line in out.splitlines())
    assert lines["needs on"].strip().startswith("cpu, ")
    assert lines["KV a token"].strip() == "0.4 KiB as f16, 0.8 KiB as f32; kept as f32 here"
    assert lines["state a context"].strip() == "none beside KV"
    assert re.fullmatch(r"[\d.]+ MiB of 2\d\d\.\d MiB", lines["in all"].strip())
    assert "256 tokens; 256 if" in lines["largest context"]


def test_where_there_is_too_little_memory_it_says_so_and_how_long_a_context_could_be(
    show: Show, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = gguf(tmp_path, context_length=1 << 20)
    monkeypatch.setenv("PIE_EDGE_KV_MEMORY", "1 GiB")
    status, out, _ = show("show", str(path), "--backend", "cpu", "--json")
    assert status == 0
    said = json.loads(out)["needs"]
    assert not said["fits"]
    assert said["total_bytes"] > said["memory_bytes"]
    assert said["context_tokens"] == 0
    assert 100_000 < said["most_context_tokens"] < 256 * 2**20 // said["kv_bytes_per_token"]["f32"]
    assert "it doesn't fit" in show("show", str(path), "--backend", "cpu")[1]


def test_a_model_that_cannot_run_is_told_with_the_reason(show: Show, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG | {"model_type": "mamba"}))
    save_file(make_weights(CONFIG), folder / "model.safetensors")
    status, out, _ = show("show", str(folder), "--json")
    assert status == 0
    told = json.loads(out)
    assert not told["runs"]
    assert "architecture 'mamba' is not known" in told["needs"]["reason"]
    status, out, err = show("show", str(folder), "--backend", "cpu", "--json")
    assert status == 1
    assert "architecture 'mamba' is not known" in err + out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["none.gguf"], "none.gguf"),
        (["PATH", "--backend", "gpu"], "backend"),
        (["PATH", "--backend", "cpu", "--device", "7"], "no device '7'"),
        (["CUT"], "CUT"),
    ],
)
def test_bad_input_is_a_typed_error(show: Show, tmp_path: Path, words: list[str], message: str) -> None:
    path = gguf(tmp_path)
    cut = tmp_path / "CUT.gguf"
    cut.write_bytes(path.read_bytes()[:-1000])
    given = [{"PATH": str(path), "CUT": str(cut)}.get(word, word) for word in words]
    status, out, err = show("show", *given)
    assert status in (1, 2)
    assert out == ""
    assert err.startswith("error: ")
    assert message in err
    assert "Traceback" not in err
