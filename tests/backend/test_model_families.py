"""Families from both containers: the same weights give the same numbers, and what doesn't fit is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pie_edge.errors import BadCheckpoint, Unsupported
from tests.support import family_checkpoints as checkpoints
from tests.support.family_checkpoints import GEMMA_CONFIG, LLAMA_CONFIG, write_gguf, write_snapshot
from tests.support.oracle_run import load, log_probabilities

TOKENS = [3, 14, 15, 9, 26, 5, 35, 8, 9, 7, 9, 3, 23, 8, 46, 26, 4, 33, 8, 32, 7, 9]


@pytest.mark.parametrize(
    ("config", "weights"),
    [(LLAMA_CONFIG, checkpoints.llama_weights()), (GEMMA_CONFIG, checkpoints.gemma_weights())],
    ids=["llama", "gemma3"],
)
def test_both_containers_give_the_same_numbers(tmp_path: Path, config: dict[str, Any], weights: dict[str, Any]) -> None:
    snapshot = load(write_snapshot(tmp_path / "hf", config, weights))
    single = load(write_gguf(tmp_path / "model.gguf", config, weights))
    one, other = log_probabilities(snapshot, TOKENS), log_probabilities(single, TOKENS)
    np.testing.assert_allclose(one, other, atol=2e-5)
    assert np.ptp(one[:, 0]) > 0.05


def test_rope_parameters_of_newer_configurations_are_read(tmp_path: Path) -> None:
    newer = {k: v for k, v in GEMMA_CONFIG.items() if not k.startswith("rope")}
    newer["rope_parameters"] = {
        "full_attention": {"rope_type": "default", "rope_theta": 1000000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    }
    weights = checkpoints.gemma_weights()
    old, new = (load(write_snapshot(tmp_path / str(i), c, weights)) for i, c in enumerate((GEMMA_CONFIG, newer)))
    assert old.spec == new.spec
    llama = {k: v for k, v in LLAMA_CONFIG.items() if k != "rope_theta"}
    llama["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0}
    weights = checkpoints.llama_weights()
    old, new = (load(write_snapshot(tmp_path / f"l{i}", c, weights)) for i, c in enumerate((LLAMA_CONFIG, llama)))
    assert old.spec == new.spec


def test_layers_listed_one_by_one_are_read(tmp_path: Path) -> None:
    weights = checkpoints.gemma_weights()
    kinds = ["sliding_attention"] * 5 + ["full_attention", "sliding_attention"]
    listed = load(write_snapshot(tmp_path / "a", GEMMA_CONFIG | {"layer_types": kinds}, weights))
    assert listed.spec == load(write_snapshot(tmp_path / "b", GEMMA_CONFIG, weights)).spec
    with pytest.raises(Unsupported, match="layer_types of 2 entries"):
        load(write_snapshot(tmp_path / "c", GEMMA_CONFIG | {"layer_types": kinds[:2]}, weights))


def test_linear_rope_scaling_divides_positions_and_other_kinds_are_refused(tmp_path: Path) -> None:
    weights = checkpoints.llama_weights()
    scaled = load(
        write_gguf(
            tmp_path / "a.gguf", LLAMA_CONFIG, weights, **{"rope.scaling.type": "linear", "rope.scaling.factor": 2.0}
        )
    )
    config = LLAMA_CONFIG | {"rope_scaling": {"type": "linear", "factor": 2.0}}
    snapshot = load(write_snapshot(tmp_path / "b", config, weights))
    assert scaled.spec.rope_scale == snapshot.spec.rope_scale == 0.5
    plain = load(write_gguf(tmp_path / "c.gguf", LLAMA_CONFIG, weights))
    assert np.abs(log_probabilities(scaled, TOKENS) - log_probabilities(plain, TOKENS)).max() > 1e-3
    with pytest.raises(Unsupported, match="rope scaling 'yarn'"):
        load(write_gguf(tmp_path / "d.gguf", LLAMA_CONFIG, weights, **{"rope.scaling.type": "yarn"}))
    with pytest.raises(Unsupported, match="rope scaling 'llama3'"):
        load(
            write_snapshot(
                tmp_path / "e", LLAMA_CONFIG | {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, weights
            )
        )


def test_an_unknown_architecture_is_refused_naming_the_nearest(tmp_path: Path) -> None:
    folder = write_snapshot(tmp_path, LLAMA_CONFIG | {"model_type": "gemma4"}, checkpoints.llama_weights())
    with pytest.raises(Unsupported, match=r"'gemma4' is not known.*knows llama.*nearest: gemma3"):
        load(folder)


REQUIRED = [
    *("context_length", "embedding_length", "block_count", "feed_forward_length", "attention.head_count"),
    "attention.layer_norm_rms_epsilon",
]


@pytest.mark.parametrize("key", REQUIRED)
def test_a_missing_fact_is_named(tmp_path: Path, key: str) -> None:
    path = write_gguf(tmp_path / "m.gguf", LLAMA_CONFIG, checkpoints.llama_weights(), **{key: None})
    with pytest.raises(BadCheckpoint, match=f"lacks llama.{key}"):
        load(path)


@pytest.mark.parametrize("key", ["rope.freq_base", "attention.head_count_kv"])
def test_a_fact_with_a_default_may_be_missing(tmp_path: Path, key: str) -> None:
    config = LLAMA_CONFIG | {"num_key_value_heads": LLAMA_CONFIG["num_attention_heads"]}
    weights = checkpoints.llama_weights(config)
    one = load(write_gguf(tmp_path / "m.gguf", config, weights, **{key: None}))
    assert one.spec == load(write_gguf(tmp_path / "n.gguf", config, weights)).spec


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("embedding_length", 0, "hidden = 0"),
        ("embedding_length", 64, "tensor .* has shape"),
        ("block_count", 3, "blk.2.attn_norm.weight is missing"),
        ("block_count", "two", "should be a whole number, is 'two'"),
        ("attention.head_count", 3, "3 heads can't share 2"),
        ("attention.head_count", 0, "heads = 0"),
        ("attention.head_count_kv", 0, "kv_heads = 0"),
    ],
)
def test_facts_that_contradict_the_tensors_are_refused(tmp_path: Path, key: str, value: Any, says: str) -> None:
    path = write_gguf(tmp_path / "m.gguf", LLAMA_CONFIG, checkpoints.llama_weights(), **{key: value})
    with pytest.raises(BadCheckpoint, match=says):
        load(path)


def test_a_tensor_that_no_op_reads_is_refused(tmp_path: Path) -> None:
    weights = checkpoints.llama_weights()
    weights["model.layers.0.self_attn.q_proj.bias"] = np.zeros(32, np.float32)
    with pytest.raises(Unsupported, match=r"q_proj.bias \(1 such\) has no place in the llama family"):
        load(write_snapshot(tmp_path, LLAMA_CONFIG, weights))
    del weights["model.layers.0.self_attn.q_proj.bias"]
    weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.zeros(4, np.float32)
    load(write_snapshot(tmp_path, LLAMA_CONFIG, weights))


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("block_count", 4294967295, "4294967295 layers, and the file has"),
        ("rope.freq_base", 0.0, "rope_base = 0.0"),
        ("rope.freq_base", -1.0, "rope_base = -1.0"),
        ("rope.freq_base", float("nan"), "is not a number"),
        ("attention.layer_norm_rms_epsilon", -1.0, "eps = -1.0"),
        ("attention.layer_norm_rms_epsilon", float("inf"), "eps = inf"),
    ],
)
def test_numbers_that_no_model_has_are_refused_at_once(tmp_path: Path, key: str, value: Any, says: str) -> None:
    path = write_gguf(tmp_path / "m.gguf", LLAMA_CONFIG, checkpoints.llama_weights(), **{key: value})
    with pytest.raises(BadCheckpoint, match=says):
        load(path)


def test_an_activation_that_the_family_does_not_compute_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="activation 'gelu'"):
        load(write_snapshot(tmp_path / "a", LLAMA_CONFIG | {"hidden_act": "gelu"}, checkpoints.llama_weights()))
    config = GEMMA_CONFIG | {"hidden_activation": "silu"}
    with pytest.raises(Unsupported, match="activation 'silu'"):
        load(write_snapshot(tmp_path / "b", config, checkpoints.gemma_weights()))
