"""Reading PEFT's adapters: what is understood, and what is refused by name rather than left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from pie_edge.errors import BadCheckpoint, ModelNotFound, PieError, Unsupported
from pie_edge.model.adapters import Target
from pie_edge.weights.adapters import stack
from pie_edge.weights.peft import read_peft
from tests.support.adapters import write_adapter

Q = "model.layers.0.self_attn.q_proj"


def changed(folder: Path, **config: Any) -> Path:
    """The adapter ``one`` with other settings."""
    write_adapter(folder, "llama", "one")
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | config), encoding="utf-8")
    return folder


def with_tensors(folder: Path, change: Any) -> Path:
    write_adapter(folder, "llama", "one")
    path = folder / "adapter_model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)
    return folder


def test_b_has_the_scale(tmp_path: Path) -> None:
    plain = read_peft(changed(tmp_path / "a", lora_alpha=4)).modules[Q][1]
    doubled = read_peft(changed(tmp_path / "b", lora_alpha=8)).modules[Q][1]
    rooted = read_peft(changed(tmp_path / "c", lora_alpha=4, use_rslora=True)).modules[Q][1]
    np.testing.assert_array_equal(doubled, 2 * plain)
    np.testing.assert_array_equal(rooted, 2 * plain)  # √4


def test_ranks_and_alphas_of_single_modules(tmp_path: Path) -> None:
    found = read_peft(write_adapter(tmp_path, "llama", "mixed")).modules
    assert {module.rpartition(".")[2]: len(a) for module, (a, _) in found.items()} == {
        "q_proj": 9,
        "k_proj": 3,
        "down_proj": 3,
    }
    one, other = (np.abs(found[f"model.layers.{layer}.mlp.down_proj"][1]).max() for layer in (0, 1))
    assert 3 < other / one < 5  # alpha 12 in place of 3


@pytest.mark.parametrize(
    ("config", "kind", "said"),
    [
        ({"peft_type": "IA3"}, Unsupported, "IA3"),
        ({"use_dora": True}, Unsupported, "DoRA"),
        ({"lora_bias": True}, Unsupported, "biases of B"),
        ({"bias": "all"}, Unsupported, "bias 'all'"),
        ({"modules_to_save": ["lm_head"]}, Unsupported, "lm_head"),
        ({"r": 5}, BadCheckpoint, "rank 4, and the configuration says 5"),
        ({"lora_alpha": "8"}, BadCheckpoint, "lora_alpha"),
        ({"lora_alpha": None}, BadCheckpoint, "lora_alpha"),
        ({"lora_alpha": float("inf")}, BadCheckpoint, "lora_alpha"),
        ({"rank_pattern": {"q_proj": True}}, BadCheckpoint, "r of the adapter is True"),
    ],
)
def test_settings_that_would_change_the_model_are_refused(
    tmp_path: Path, config: dict[str, Any], kind: type[PieError], said: str
) -> None:
    with pytest.raises(kind, match=said) as caught:
        read_peft(changed(tmp_path, **config))
    assert str(tmp_path) in str(caught.value)


def _renamed(old: str, new: str) -> Any:
    return lambda tensors: tensors.update({new: tensors.pop(old)})


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [
        (_renamed(f"base_model.model.{Q}.lora_A.weight", "base_model.model.lm_head.weight"), Unsupported, "lm_head"),
        (lambda t: t.pop(f"base_model.model.{Q}.lora_A.weight"), BadCheckpoint, "lora_B alone"),
        (
            lambda t: t.update({f"base_model.model.{Q}.lora_A.weight": np.zeros((3, 64), np.float32)}),
            BadCheckpoint,
            "don't multiply",
        ),
        (
            lambda t: t.update({f"base_model.model.{Q}.lora_B.weight": np.full((64, 4), np.nan, np.float32)}),
            BadCheckpoint,
            "no finite numbers",
        ),
        (lambda t: t.clear(), BadCheckpoint, "holds no LoRA"),
        (
            lambda t: t.update({f"base_model.model.{Q}.lora_magnitude_vector": np.ones(64, np.float32)}),
            Unsupported,
            "lora_magnitude_vector",
        ),
    ],
)
def test_tensors_that_make_no_adapter_are_refused(tmp_path: Path, change: Any, kind: type[PieError], said: str) -> None:
    with pytest.raises(kind, match=said):
        read_peft(with_tensors(tmp_path, change))


@pytest.mark.parametrize("missing", ["adapter_config.json", "adapter_model.safetensors"])
def test_a_folder_that_is_no_adapter(tmp_path: Path, missing: str) -> None:
    (write_adapter(tmp_path, "llama", "one") / missing).unlink()
    with pytest.raises(ModelNotFound, match=missing):
        read_peft(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{", "\x00"])
def test_a_configuration_that_is_no_json_object(tmp_path: Path, text: str) -> None:
    (write_adapter(tmp_path, "llama", "one") / "adapter_config.json").write_text(text, encoding="utf-8")
    with pytest.raises(BadCheckpoint, match="adapter_config"):
        read_peft(tmp_path)


def test_an_adapter_of_another_model_is_refused(tmp_path: Path) -> None:
    adapter = read_peft(write_adapter(tmp_path, "llama", "one"))
    with pytest.raises(Unsupported, match=r"adapter poet .* changes model\.layers\.0"):
        stack({"poet": adapter}, lambda module: None)
    with pytest.raises(BadCheckpoint, match="64 × 96 there, and 64 × 32 in this model"):
        stack({"poet": adapter}, lambda module: (Target("0.q", ((0, 64),), 32, 0),))
