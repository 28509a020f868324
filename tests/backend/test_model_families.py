"""Families from both containers: the same weights give the same numbers, and what doesn't fit is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pie_edge.errors import BadCheckpoint, Unsupported
from pie_edge.weights.checkpoint import open_checkpoint
from pie_edge.weights.fingerprint import fingerprint
from tests.support.family_checkpoints import make_weights, write_gguf, write_snapshot
from tests.support.family_configs import CONFIGS
from tests.support.oracle_run import load, log_probabilities

LLAMA_CONFIG = CONFIGS["llama"]
GEMMA_CONFIG = {key: value for key, value in CONFIGS["gemma3"].items() if key != "rope_scaling"}
TOKENS = [3, 14, 15, 9, 26, 5, 35, 8, 9, 7, 9, 3, 23, 8, 46, 26, 4, 33, 8, 32, 7, 9]


def test_rope_parameters_of_newer_configurations_are_read(tmp_path: Path) -> None:
    newer = {k: v for k, v in GEMMA_CONFIG.items() if not k.startswith("rope")}
    newer["rope_parameters"] = {
        "full_attention": {"rope_type": "default", "rope_theta": 1000000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    }
    weights = make_weights(GEMMA_CONFIG)
    old, new = (load(write_snapshot(tmp_path / str(i), c, weights)) for i, c in enumerate((GEMMA_CONFIG, newer)))
    assert old.spec == new.spec
    llama = {k: v for k, v in LLAMA_CONFIG.items() if k != "rope_theta"}
    llama["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0}
    weights = make_weights(LLAMA_CONFIG)
    old, new = (load(write_snapshot(tmp_path / f"l{i}", c, weights)) for i, c in enumerate((LLAMA_CONFIG, llama)))
    assert old.spec == new.spec


def test_layers_listed_one_by_one_are_read(tmp_path: Path) -> None:
    weights = make_weights(GEMMA_CONFIG)
    kinds = ["sliding_attention"] * 5 + ["full_attention", "sliding_attention"]
    listed = load(write_snapshot(tmp_path / "a", GEMMA_CONFIG | {"layer_types": kinds}, weights))
    assert listed.spec == load(write_snapshot(tmp_path / "b", GEMMA_CONFIG, weights)).spec
    with pytest.raises(Unsupported, match="layer_types of 2 entries"):
        load(write_snapshot(tmp_path / "c", GEMMA_CONFIG | {"layer_types": kinds[:2]}, weights))


def test_linear_rope_scaling_divides_positions_and_other_kinds_are_refused(tmp_path: Path) -> None:
    weights = make_weights(LLAMA_CONFIG)
    scaled = load(
        write_gguf(
            tmp_path / "a.gguf", LLAMA_CONFIG, weights, **{"rope.scaling.type": "linear", "rope.scaling.factor": 2.0}
        )
    )
    config = LLAMA_CONFIG | {"rope_scaling": {"type": "linear", "factor": 2.0}}
    snapshot = load(write_snapshot(tmp_path / "b", config, weights))
    assert scaled.spec.rope.scale == snapshot.spec.rope.scale == 0.5
    plain = load(write_gguf(tmp_path / "c.gguf", LLAMA_CONFIG, weights))
    assert np.abs(log_probabilities(scaled, TOKENS) - log_probabilities(plain, TOKENS)).max() > 1e-3
    with pytest.raises(Unsupported, match="rope scaling 'longrope'"):
        load(write_gguf(tmp_path / "d.gguf", LLAMA_CONFIG, weights, **{"rope.scaling.type": "longrope"}))
    config = LLAMA_CONFIG | {"rope_scaling": {"rope_type": "dynamic", "factor": 8.0}}
    with pytest.raises(Unsupported, match="rope scaling 'dynamic'"):
        load(write_snapshot(tmp_path / "e", config, weights))
    with pytest.raises(Unsupported, match="yarn_ext_factor = 0.5"):
        load(write_gguf(tmp_path / "f.gguf", LLAMA_CONFIG, weights, **{"rope.scaling.yarn_ext_factor": 0.5}))


def test_an_unknown_architecture_is_refused_naming_the_nearest(tmp_path: Path) -> None:
    folder = write_snapshot(tmp_path, LLAMA_CONFIG | {"model_type": "gemma4"}, make_weights(LLAMA_CONFIG))
    with pytest.raises(Unsupported, match=r"'gemma4' is not known.*knows llama.*nearest: gemma"):
        load(folder)


@pytest.mark.parametrize("key", ["use_bidirectional_attention", "is_causal"])
def test_a_model_that_attends_to_later_tokens_is_refused(tmp_path: Path, key: str) -> None:
    config = LLAMA_CONFIG | {key: key != "is_causal"}
    with pytest.raises(Unsupported, match="attention to later tokens is not known to the llama family"):
        load(write_snapshot(tmp_path, config, make_weights(LLAMA_CONFIG)))
    path = write_gguf(tmp_path / "m.gguf", LLAMA_CONFIG, make_weights(LLAMA_CONFIG), **{"attention.causal": False})
    with pytest.raises(Unsupported, match="attention to later tokens"):
        load(path)


REQUIRED = [
    *("context_length", "embedding_length", "block_count", "feed_forward_length", "attention.head_count"),
    "attention.layer_norm_rms_epsilon",
]


@pytest.mark.parametrize("key", REQUIRED)
def test_a_missing_fact_is_named(tmp_path: Path, key: str) -> None:
    path = write_gguf(tmp_path / "m.gguf", LLAMA_CONFIG, make_weights(LLAMA_CONFIG), **{key: None})
    with pytest.raises(BadCheckpoint, match=f"lacks llama.{key}"):
        load(path)


@pytest.mark.parametrize("key", ["rope.freq_base", "attention.head_count_kv"])
def test_a_fact_with_a_default_may_be_missing(tmp_path: Path, key: str) -> None:
    config = LLAMA_CONFIG | {"num_key_value_heads": LLAMA_CONFIG["num_attention_heads"]}
    weights = make_weights(config)
    one = load(write_gguf(tmp_path / "m.gguf", config, weights, **{key: None}))
    assert one.spec == load(write_gguf(tmp_path / "n.gguf", config, weights)).spec


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("embedding_length", 0, "hidden = 0"),
        ("embedding_length", 128, "tensor .* has shape"),
        ("block_count", 4, "blk.3.attn_norm.weight is missing"),
        ("block_count", "two", "should be a whole number, is 'two'"),
        ("attention.head_count", 3, "3 heads can't share 2"),
        ("attention.head_count", 0, "heads = 0"),
        ("attention.head_count_kv", 0, "kv_heads = 0"),
    ],
)
def test_facts_that_contradict_the_tensors_are_refused(tmp_path: Path, key: str, value: Any, says: str) -> None:
    path = write_gguf(tmp_path / "m.gguf", LLAMA_CONFIG, make_weights(LLAMA_CONFIG), **{key: value})
    with pytest.raises(BadCheckpoint, match=says):
        load(path)


def test_a_tensor_that_no_op_reads_is_refused(tmp_path: Path) -> None:
    weights = make_weights(LLAMA_CONFIG)
    weights["model.layers.0.self_attn.q_proj.bias"] = np.zeros(64, np.float32)
    with pytest.raises(Unsupported, match=r"q_proj.bias \(1 such\) has no place in the llama family"):
        load(write_snapshot(tmp_path, LLAMA_CONFIG, weights))
    del weights["model.layers.0.self_attn.q_proj.bias"]
    weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.zeros(4, np.float32)
    load(write_snapshot(tmp_path, LLAMA_CONFIG, weights))


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("block_count", 4294967295, "4294967295 layers, and the file has"),
        ("rope.freq_base", 0.0, "rope base = 0.0"),
        ("rope.freq_base", -1.0, "rope base = -1.0"),
        ("rope.freq_base", float("nan"), "is not a number"),
        ("attention.layer_norm_rms_epsilon", -1.0, "eps = -1.0"),
        ("attention.layer_norm_rms_epsilon", float("inf"), "epsilon should be a number, is inf"),
    ],
)
def test_numbers_that_no_model_has_are_refused_at_once(tmp_path: Path, key: str, value: Any, says: str) -> None:
    path = write_gguf(tmp_path / "m.gguf", LLAMA_CONFIG, make_weights(LLAMA_CONFIG), **{key: value})
    with pytest.raises(BadCheckpoint, match=says):
        load(path)


@pytest.mark.parametrize("name", ["gemma2", "gemma3", "gpt-oss", "lfm2", "qwen3.5", "qwen3-next", "gpt2"])
def test_a_count_of_billions_of_layers_is_refused_before_anything_is_listed(name: str, tmp_path: Path) -> None:
    config, weights = CONFIGS[name], make_weights(CONFIGS[name])
    path = write_gguf(tmp_path / "m.gguf", config, weights, block_count=2**32 - 1)
    with pytest.raises(BadCheckpoint, match="4294967295 layers, and the file has"):
        load(path)
    count = "n_layer" if name == "gpt2" else "num_hidden_layers"
    snapshot = write_snapshot(tmp_path / "snapshot", config, weights)
    told = {key: value for key, value in config.items() if key not in ("layer_types", "no_rope_layers")}
    (snapshot / "config.json").write_text(json.dumps(told | {count: 2**60}), encoding="utf-8")
    with pytest.raises(BadCheckpoint, match="1152921504606846976 layers, and the file has"):
        load(snapshot)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_head_that_should_be_there_is_missed(name: str, tmp_path: Path) -> None:
    config, weights = CONFIGS[name] | {"tie_word_embeddings": False}, make_weights(CONFIGS[name])
    weights.pop("lm_head.weight", None)
    with pytest.raises(BadCheckpoint, match=r"tensor lm_head\.weight is missing, and the model is not tied"):
        load(write_snapshot(tmp_path, config, weights))


def test_the_number_of_experts_has_two_names(tmp_path: Path) -> None:
    config = dict(CONFIGS["qwen3-moe"])
    config["num_local_experts"] = config.pop("num_experts")
    model = load(write_snapshot(tmp_path, config, make_weights(CONFIGS["qwen3-moe"])))
    assert model.spec.experts == config["num_local_experts"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("what", ["linear", [2], 2, True])
@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters", "layer_types"])
def test_facts_of_the_wrong_type_are_not_passed_over(key: str, what: Any, tmp_path: Path) -> None:
    name = "gemma2" if key == "layer_types" else "llama"
    with pytest.raises(BadCheckpoint, match=f"{key} should be"):
        load(write_snapshot(tmp_path, CONFIGS[name] | {key: what}, make_weights(CONFIGS[name])))


@pytest.mark.parametrize("key", ["rms_norm_eps", "rope_theta", "head_dim", "hidden_size", "max_position_embeddings"])
def test_a_number_of_hundreds_of_digits_is_refused_in_a_few(key: str, tmp_path: Path) -> None:
    with pytest.raises(BadCheckpoint, match=f"{key} should be a") as caught:
        load(write_snapshot(tmp_path, LLAMA_CONFIG | {key: 10**400}, make_weights(LLAMA_CONFIG)))
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(("kind", "factor"), [("yarn", None), ("linear", None), ("linear", 0.0), ("linear", -1.0)])
def test_a_scaling_without_a_factor_is_refused(kind: str, factor: float | None, tmp_path: Path) -> None:
    told = {"rope.scaling.type": kind, "rope.scaling.factor": factor}
    path = write_gguf(tmp_path / "m.gguf", LLAMA_CONFIG, make_weights(LLAMA_CONFIG), **told)
    with pytest.raises(BadCheckpoint, match=r"rope\.scaling\.factor"):
        load(path)


def test_a_huge_factor_divides_by_all_it_can(tmp_path: Path) -> None:
    scaling = CONFIGS["llama-yarn"]["rope_scaling"] | {"factor": 2.0**63}
    config = CONFIGS["llama-yarn"] | {"rope_scaling": scaling}
    load(write_snapshot(tmp_path, config, make_weights(config)))


def test_an_activation_that_the_family_does_not_compute_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="activation 'gelu'"):
        load(write_snapshot(tmp_path / "a", LLAMA_CONFIG | {"hidden_act": "gelu"}, make_weights(LLAMA_CONFIG)))
    config = GEMMA_CONFIG | {"hidden_activation": "silu"}
    with pytest.raises(Unsupported, match="activation 'silu'"):
        load(write_snapshot(tmp_path / "b", config, make_weights(GEMMA_CONFIG)))


def test_a_missing_bias_or_a_fused_tensor_of_another_height_is_named(tmp_path: Path) -> None:
    weights = make_weights(CONFIGS["qwen2"])
    del weights["model.layers.1.self_attn.k_proj.bias"]
    with pytest.raises(BadCheckpoint, match=r"tensor blk\.1\.attn_k\.bias is missing"):
        load(write_gguf(tmp_path / "a.gguf", CONFIGS["qwen2"], weights))
    weights = make_weights(CONFIGS["phi3"])
    weights["model.layers.2.self_attn.qkv_proj.weight"] = np.zeros((130, 64), np.float32)
    with pytest.raises(BadCheckpoint, match=r"qkv_proj.weight has shape \[130, 64\]; its metadata says \[128, 64\]"):
        load(write_snapshot(tmp_path / "b", CONFIGS["phi3"], weights))
    weights = make_weights(CONFIGS["gpt2"])
    weights["transformer.h.0.mlp.c_fc.weight"] = np.zeros((256, 64), np.float32)  # as a GGUF has it
    with pytest.raises(BadCheckpoint, match=r"c_fc.weight has shape \[256, 64\]; its metadata says \[64, 256\]"):
        load(write_snapshot(tmp_path / "c", CONFIGS["gpt2"], weights))


ROPES = [
    ({"rope_theta": 1.0}, "rope base = 1.0"),
    ({"rope_scaling": {"type": "linear", "factor": 0.0}}, "rope factor = 0.0"),
    ({"rope_scaling": {"type": "linear"}}, "lacks factor"),
    ({"rope_scaling": CONFIGS["llama-llama3"]["rope_scaling"] | {"high_freq_factor": 1.0}}, "high_freq_factor = 1.0"),
    ({"rope_scaling": CONFIGS["llama-yarn"]["rope_scaling"] | {"factor": -4.0}}, "rope factor = -4.0"),
    ({"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 0}}, "embeddings = 0"),
    ({"rope_scaling": {"type": "longrope", "short_factor": [1.0], "factor": 4.0}}, "short_factor should be 8 numbers"),
    ({"rope_scaling": {"type": "longrope", "short_factor": [0.0] * 8, "factor": 4.0}}, "rope factor = 0.0"),
    ({"partial_rotary_factor": 0.7}, "turn 11 of 16 values"),
    ({"partial_rotary_factor": 1.5}, "turn 24 of 16 values"),
    ({"partial_rotary_factor": 1e300}, "turn 65537 of 16 values"),
    ({"partial_rotary_factor": float("nan")}, "partial_rotary_factor should be a number, is nan"),
    (
        {"rope_scaling": CONFIGS["llama-yarn"]["rope_scaling"] | {"factor": float("inf")}},
        "factor should be a number, is inf",
    ),
    (
        {"rope_scaling": CONFIGS["llama-yarn"]["rope_scaling"] | {"attention_factor": float("nan")}},
        "attention_factor should be a",
    ),
]


@pytest.mark.parametrize(("change", "says"), ROPES, ids=[says for _, says in ROPES])
def test_a_rope_that_no_model_has_is_refused(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    with pytest.raises(BadCheckpoint, match=says):
        load(write_snapshot(tmp_path, LLAMA_CONFIG | change, make_weights(LLAMA_CONFIG)))


@pytest.mark.parametrize("container", ["snapshot", "gguf"])
def test_longrope_reaches_beyond_its_original_length_only_if_asked(tmp_path: Path, container: str) -> None:
    config, weights = CONFIGS["phi3-long"], make_weights(CONFIGS["phi3-long"])
    path = tmp_path / "model"
    path = write_gguf(path, config, weights) if container == "gguf" else write_snapshot(path, config, weights)
    short, least, long = (load(path, context) for context in (0, 20, 100))
    assert (short.spec.context, least.spec.context, long.spec.context) == (32, 20, 100)
    assert np.array_equal(short.weights["rope_factors"], least.weights["rope_factors"])
    assert not np.array_equal(short.weights["rope_factors"], long.weights["rope_factors"])
    with pytest.raises(Unsupported, match="context of 257 positions is wanted, and the model is good for 256"):
        load(path, 257)
    with open_checkpoint(path) as checkpoint:
        prints = [fingerprint(checkpoint, model.family.weights(model.spec)) for model in (short, least, long)]
    assert prints[0] == prints[1] != prints[2]
