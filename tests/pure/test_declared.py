"""What checkpoints declare of pooling and of sampling."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pie_edge.cli import main
from pie_edge.cli.model import describe
from pie_edge.errors import BadCheckpoint
from pie_edge.model.pooling import Pooling, pooling
from pie_edge.model.recommended import recommended
from pie_edge.weights.checkpoint import open_checkpoint
from tests.support import embedding_model


@dataclass
class Files:
    metadata: dict[str, Any] = field(default_factory=dict)
    container: str = "safetensors"
    architecture: str = "qwen3"


def gguf(**keys: Any) -> Files:
    return Files({name.replace("__", "."): value for name, value in keys.items()}, "gguf")


def pooled(modes: dict[str, Any], *modules: str) -> Files:
    steps = [{"idx": i, "type": f"sentence_transformers.models.{name}"} for i, name in enumerate(modules)]
    return Files({"1_Pooling/config.json": modes, "modules.json": steps})


DECLARED: list[tuple[Files, str, str]] = [
    (gguf(qwen3__pooling_type=1), "mean", ""),
    (gguf(qwen3__pooling_type=2), "cls", ""),
    (gguf(qwen3__pooling_type=3), "last", ""),
    (gguf(qwen3__pooling_type=4), "", "pooling by rank"),
    (gguf(qwen3__pooling_type=9), "", "pooling by 9"),
    (gguf(qwen3__pooling_type=0), "", "declare no pooling"),
    (gguf(llama__pooling_type=1), "", "declare no pooling"),
    (pooled({"pooling_mode_mean_tokens": True, "pooling_mode_lasttoken": False}), "mean", ""),
    (pooled({"pooling_mode_lasttoken": True}, "Transformer", "Pooling", "Normalize"), "last", ""),
    (pooled({"pooling_mode_cls_token": True}), "cls", ""),
    (pooled({"pooling_mode_max_tokens": True}), "", "pooling by max"),
    (pooled({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}), "", "pooling by mean and cls"),
    (pooled({"pooling_mode_mean_tokens": True}, "Transformer", "Pooling", "Dense"), "", "has a module Dense"),
    (pooled({}), "", "declare no pooling"),
    (Files(), "", "declare no pooling"),
]


@pytest.mark.parametrize(("files", "kind", "reason"), DECLARED)
def test_pooling_is_what_the_files_declare_or_why_there_is_none(files: Files, kind: str, reason: str) -> None:
    found = pooling(files)
    assert found.kind == kind
    assert reason in found.reason
    assert bool(found.reason) != bool(kind)


def test_a_setting_says_it_instead() -> None:
    files = gguf(qwen3__pooling_type=3)
    assert pooling(files, "mean") == pooling(Files(), "mean") == Pooling("mean")
    assert pooling(files, "none").kind == "" and "setting" in pooling(files, "none").reason


def test_what_switched_vectors_off_is_what_is_to_be_left_out() -> None:
    refused = pooling(gguf(qwen3__pooling_type=1), "none").refusal
    assert "declare pooling by mean: leave out --pooling none" in refused and "PIE_EDGE_POOLING" in refused
    for files in (Files(), gguf(qwen3__pooling_type=4)):
        assert "--pooling mean, last or cls (the setting pooling, or PIE_EDGE_POOLING)" in pooling(files).refusal
        assert "leave out" not in pooling(files, "none").refusal
    assert pooling(Files(), "mean").refusal == ""


def config(**stated: Any) -> Files:
    return Files({"generation_config.json": stated})


def test_sampling_is_what_the_files_recommend() -> None:
    stated = {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.0, "repetition_penalty": 1.05}
    everything = {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.0, "repetition": 1.05}
    assert dict(recommended(config(**stated, do_sample=True, eos_token_id=[1, 2], max_new_tokens=3))) == everything
    keys = {"temp": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.0, "penalty_repeat": 1.05}
    files = gguf(**{f"general__sampling__{name}": value for name, value in keys.items()})
    assert dict(recommended(files)) == everything
    assert recommended(Files()) == recommended(gguf()) == recommended(config(temperature=None)) == ()
    assert recommended(config(top_k=-1)) == (("top_k", 0),)


@pytest.mark.parametrize(
    "stated",
    [{"temperature": "hot"}, {"temperature": -1}, {"top_p": 0}, {"top_p": 1.5}, {"top_k": 1.5}, {"min_p": True}],
)
def test_what_means_nothing_is_refused_with_its_key(stated: dict[str, Any]) -> None:
    with pytest.raises(BadCheckpoint, match=f"recommends a {next(iter(stated))} of .*generation_config off"):
        recommended(config(**stated))


@pytest.mark.parametrize(
    ("stated", "told"),
    [
        (
            {"temperature": 0.6, "top_k": 20},
            {"runs": True, "pooling": "last", "sampling": {"temperature": 0.6, "top_k": 20}},
        ),
        ({}, {"runs": True, "pooling": "last", "sampling": {}}),
        ({"top_p": 7}, {"runs": False, "pooling": "last"}),
    ],
)
def test_model_show_tells_both(tmp_path: Path, stated: dict[str, Any], told: dict[str, Any]) -> None:
    folder = embedding_model.write(tmp_path / "model")
    (folder / "generation_config.json").write_text(json.dumps(stated), encoding="utf-8")
    with open_checkpoint(folder) as checkpoint:
        found = describe(checkpoint)
    assert {name: found[name] for name in told} == told
    assert found["runs"] or "recommends a top_p of 7" in found["reason"]


@pytest.mark.parametrize(
    ("pooling", "told"), [("last", "last"), ("max", "none: its files declare pooling by max, and")]
)
def test_model_show_tells_what_was_found_where_it_can_t_be_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pooling: str, told: str
) -> None:
    folder = embedding_model.write(tmp_path / "model", pooling)
    with pytest.raises(SystemExit):
        main(["model", "show", str(folder), "--backend", "cpu"])
    assert re.search(rf"^pooling +{told}", capsys.readouterr().out, re.MULTILINE)
