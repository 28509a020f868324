"""Tiny hybrid models: their configurations, their weights' shapes, and how llama.cpp's converter names and stores those."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Config = dict[str, Any]
Floats = NDArray[np.float32]
Shapes = dict[str, tuple[int, ...]]

_LFM2: Config = {
    "model_type": "lfm2",
    "architectures": ["Lfm2ForCausalLM"],
    "vocab_size": 96,
    "hidden_size": 64,
    "block_ff_dim": 144,
    "block_auto_adjust_ff_dim": True,
    "block_ffn_dim_multiplier": 1.0,
    "block_multiple_of": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "norm_eps": 1e-5,
    "rope_theta": 1000000.0,
    "conv_L_cache": 3,
    "conv_bias": False,
    "full_attn_idxs": [2],
    "tie_embedding": True,
}
_QWEN3_5: Config = {
    "model_type": "qwen3_5_text",
    "architectures": ["Qwen3_5ForCausalLM"],
    "hidden_act": "silu",
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "partial_rotary_factor": 0.25,
    "tie_word_embeddings": False,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "full_attention_interval": 3,
}
_TIED: Config = {
    "num_hidden_layers": 3,
    "full_attention_interval": 2,
    "linear_key_head_dim": 24,
    "linear_value_head_dim": 32,
    "tie_word_embeddings": True,
}
_QWEN3_NEXT = _QWEN3_5 | {
    "model_type": "qwen3_next",
    "architectures": ["Qwen3NextForCausalLM"],
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "shared_expert_intermediate_size": 40,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
CONFIGS: dict[str, Config] = {
    "lfm2": _LFM2,
    "lfm2-bias": _LFM2 | {"conv_bias": True, "conv_L_cache": 4, "layer_types": ["conv", "full_attention"] * 2},
    "qwen3.5": _QWEN3_5,
    "qwen3.5-tied": _QWEN3_5 | _TIED,
    "qwen3-next": _QWEN3_NEXT,
}
NOT_IN_GGUF = {"lfm2-bias": "llama.cpp reads no biases of convolutions"}
KINDS = {"lfm2": "lfm2", "qwen3_5_text": "qwen35", "qwen3_next": "qwen3next"}
"""Hybrid model types, and what GGUF files call them."""


def attends(config: Config) -> list[bool]:
    """Which layers do."""
    count, kinds = config["num_hidden_layers"], config.get("layer_types")
    if kinds is not None:
        return [kind == "full_attention" for kind in kinds]
    if config["model_type"] == "lfm2":
        return [layer in config["full_attn_idxs"] for layer in range(count)]
    return [(layer + 1) % config["full_attention_interval"] == 0 for layer in range(count)]


def shapes(config: Config) -> Shapes:
    """Every weight by its Hugging Face name."""
    lfm2, hidden, vocabulary = config["model_type"] == "lfm2", config["hidden_size"], config["vocab_size"]
    found: Shapes = {"model.embed_tokens.weight": (vocabulary, hidden)}
    for i, attention in enumerate(attends(config)):
        parts = _lfm2(config, attention) if lfm2 else _qwen(config, attention)
        found |= {f"model.layers.{i}.{name}": shape for name, shape in parts.items()}
    found["model.embedding_norm.weight" if lfm2 else "model.norm.weight"] = (hidden,)
    return found if config.get("tie_word_embeddings", True) else found | {"lm_head.weight": (vocabulary, hidden)}


def _lfm2(config: Config, attention: bool) -> Shapes:
    hidden, kernel = config["hidden_size"], config["conv_L_cache"]
    mlp = 96  # two thirds of block_ff_dim
    found: Shapes = {"operator_norm.weight": (hidden,), "ffn_norm.weight": (hidden,)}
    found |= {f"feed_forward.w{n}.weight": (hidden, mlp) if n == 2 else (mlp, hidden) for n in (1, 2, 3)}
    if attention:
        return found | _projections(config, hidden // config["num_attention_heads"], "out_proj", "_layernorm", 1)
    matrices = {
        "conv.in_proj": (3 * hidden, hidden),
        "conv.conv": (hidden, 1, kernel),
        "conv.out_proj": (hidden, hidden),
    }
    found |= {f"{name}.weight": shape for name, shape in matrices.items()}
    return found | {f"{name}.bias": shape[:1] for name, shape in matrices.items()} if config["conv_bias"] else found


def _projections(config: Config, width: int, out: str, norm: str, gated: int) -> Shapes:
    hidden, q, kv = config["hidden_size"], config["num_attention_heads"] * width, config["num_key_value_heads"] * width
    rows = {"q_proj": gated * q, "k_proj": kv, "v_proj": kv}
    found: Shapes = {f"self_attn.{name}.weight": (count, hidden) for name, count in rows.items()}
    found |= {f"self_attn.{part}{norm}.weight": (width,) for part in "qk"}
    return found | {f"self_attn.{out}.weight": (hidden, q)}


def _qwen(config: Config, attention: bool) -> Shapes:
    hidden, following = config["hidden_size"], config["model_type"] == "qwen3_5_text"
    found: Shapes = {"input_layernorm.weight": (hidden,), "post_attention_layernorm.weight": (hidden,)}
    found |= _gated("mlp", hidden, config["intermediate_size"]) if following else _mixture(config)
    if attention:
        return found | _projections(config, config["head_dim"], "o_proj", "_norm", 2)
    heads = config["linear_num_value_heads"]
    keys, values = (
        config["linear_num_key_heads"] * config["linear_key_head_dim"],
        heads * config["linear_value_head_dim"],
    )
    rows = {"in_proj_qkv": 2 * keys + values, "in_proj_z": values, "in_proj_a": heads, "in_proj_b": heads}
    rows = rows if following else {"in_proj_qkvz": 2 * (keys + values), "in_proj_ba": 2 * heads}
    found |= {f"linear_attn.{name}.weight": (count, hidden) for name, count in rows.items()}
    found |= {"linear_attn.A_log": (heads,), "linear_attn.dt_bias": (heads,)}
    found["linear_attn.conv1d.weight"] = (2 * keys + values, 1, config["linear_conv_kernel_dim"])
    found["linear_attn.norm.weight"] = (config["linear_value_head_dim"],)
    return found | {"linear_attn.out_proj.weight": (hidden, values)}


def _gated(block: str, hidden: int, width: int) -> Shapes:
    return {
        f"{block}.{p}_proj.weight": (hidden, width) if p == "down" else (width, hidden) for p in ("gate", "up", "down")
    }


def _mixture(config: Config) -> Shapes:
    hidden, experts = config["hidden_size"], config["num_experts"]
    found: Shapes = {"mlp.gate.weight": (experts, hidden), "mlp.shared_expert_gate.weight": (1, hidden)}
    for index in range(experts):
        found |= _gated(f"mlp.experts.{index}", hidden, config["moe_intermediate_size"])
    return found | _gated("mlp.shared_expert", hidden, config["shared_expert_intermediate_size"])


def is_shifted(config: Config, name: str) -> bool:
    """Whether 1 is added to this norm's weight."""
    return (
        config["model_type"] != "lfm2" and name.endswith("norm.weight") and not name.endswith("linear_attn.norm.weight")
    )


_FIXED = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.embedding_norm.weight": "token_embd_norm.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_PARTS = {
    "operator_norm.weight": "attn_norm.weight",
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "post_attention_norm.weight",
    "ffn_norm.weight": "ffn_norm.weight",
    "feed_forward.w1.weight": "ffn_gate.weight",
    "feed_forward.w3.weight": "ffn_up.weight",
    "feed_forward.w2.weight": "ffn_down.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.out_proj.weight": "attn_output.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "self_attn.q_layernorm.weight": "attn_q_norm.weight",
    "self_attn.k_layernorm.weight": "attn_k_norm.weight",
    "conv.in_proj.weight": "shortconv.in_proj.weight",
    "conv.conv.weight": "shortconv.conv.weight",
    "conv.out_proj.weight": "shortconv.out_proj.weight",
    "linear_attn.in_proj_qkv.weight": "attn_qkv.weight",
    "linear_attn.in_proj_z.weight": "attn_gate.weight",
    "linear_attn.in_proj_qkvz.weight": "ssm_in.weight",
    "linear_attn.in_proj_ba.weight": "ssm_ba.weight",
    "mlp.gate.weight": "ffn_gate_inp.weight",
    "mlp.experts.gate_proj.weight": "ffn_gate_exps.weight",
    "mlp.experts.up_proj.weight": "ffn_up_exps.weight",
    "mlp.experts.down_proj.weight": "ffn_down_exps.weight",
    "mlp.shared_expert_gate.weight": "ffn_gate_inp_shexp.weight",
    "mlp.shared_expert.gate_proj.weight": "ffn_gate_shexp.weight",
    "mlp.shared_expert.up_proj.weight": "ffn_up_shexp.weight",
    "mlp.shared_expert.down_proj.weight": "ffn_down_shexp.weight",
    "linear_attn.in_proj_a.weight": "ssm_alpha.weight",
    "linear_attn.in_proj_b.weight": "ssm_beta.weight",
    "linear_attn.conv1d.weight": "ssm_conv1d.weight",
    "linear_attn.A_log": "ssm_a",
    "linear_attn.dt_bias": "ssm_dt.bias",
    "linear_attn.norm.weight": "ssm_norm.weight",
    "linear_attn.out_proj.weight": "ssm_out.weight",
}


def gguf_name(name: str) -> str:
    if name in _FIXED:
        return _FIXED[name]
    layer, _, part = name.removeprefix("model.layers.").partition(".")
    return f"blk.{layer}.{_PARTS[part]}"


def converted(config: Config, name: str, weight: Floats) -> Floats:
    """A weight as llama.cpp's converter stores it: value heads tiled, −exp of the decay, the 1 of norms added."""
    if is_shifted(config, name):
        return weight + np.float32(1)
    if name.endswith("shared_expert_gate.weight"):
        return weight[0]
    if ".conv.conv." in name:
        return weight[:, 0]
    if ".linear_attn." not in name or name.endswith("norm.weight"):
        return weight
    part = name.rpartition("linear_attn.")[2].partition(".")[0]
    weight = -np.exp(weight) if part == "A_log" else weight[:, 0] if part == "conv1d" else weight
    if config["model_type"] == "qwen3_next":
        return weight
    keys = 2 * config["linear_num_key_heads"] * config["linear_key_head_dim"]
    if part == "out_proj":
        return _tiled(config, weight.T).T
    if part in ("in_proj_qkv", "conv1d"):
        return np.concatenate([weight[:keys], _tiled(config, weight[keys:])])
    return _tiled(config, weight)


def unfused(config: Config, weights: dict[str, Floats]) -> dict[str, Floats]:
    """Qwen3-Next's queries, keys, values and gates, which lie by key head, as all queries, keys and values; and all gates."""
    found = {}
    groups, keys = config.get("linear_num_key_heads", 1), config.get("linear_key_head_dim", 0)
    for name, weight in weights.items():
        if not name.endswith("in_proj_qkvz.weight"):
            found[name] = weight
            continue
        by_head = weight.reshape(groups, -1, weight.shape[1])
        values = (by_head.shape[1] - 2 * keys) // 2
        q, k, v, z = np.split(by_head, np.cumsum([keys, keys, values]), axis=1)
        parts = {
            "qkv": np.concatenate([p.reshape(-1, weight.shape[1]) for p in (q, k, v)]),
            "z": z.reshape(-1, weight.shape[1]),
        }
        found |= {name.replace("qkvz", part): rows for part, rows in parts.items()}
    return found


def _tiled(config: Config, rows: Floats) -> Floats:
    """Rows of value heads, those of a key head's side by side, to key heads' first ones, then their second ones, …"""
    groups, shared = config["linear_num_key_heads"], config["linear_num_value_heads"] // config["linear_num_key_heads"]
    return rows.reshape(groups, shared, -1, *rows.shape[1:]).swapaxes(0, 1).reshape(rows.shape)


def metadata(config: Config) -> dict[str, Any]:
    """A GGUF's keys, without the architecture's prefix."""
    lfm2, kv = config["model_type"] == "lfm2", config["num_key_value_heads"]
    found = {
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "block_count": config["num_hidden_layers"],
        "feed_forward_length": 96,
        "attention.head_count": config["num_attention_heads"],
        "attention.layer_norm_rms_epsilon": config["norm_eps" if lfm2 else "rms_norm_eps"],
        "rope.freq_base": config["rope_theta"],
    }
    if lfm2:
        counts = [kv if attention else 0 for attention in attends(config)]
        return found | {"attention.head_count_kv": counts, "shortconv.l_cache": config["conv_L_cache"]}
    return found | {
        "attention.head_count_kv": kv,
        "attention.key_length": config["head_dim"],
        "attention.value_length": config["head_dim"],
        "rope.dimension_count": int(config["head_dim"] * config["partial_rotary_factor"]),
        "rope.dimension_sections": [11, 11, 10, 0],
        "ssm.conv_kernel": config["linear_conv_kernel_dim"],
        "ssm.state_size": config["linear_key_head_dim"],
        "ssm.group_count": config["linear_num_key_heads"],
        "ssm.time_step_rank": config["linear_num_value_heads"],
        "ssm.inner_size": config["linear_num_value_heads"] * config["linear_value_head_dim"],
        "full_attention_interval": config["full_attention_interval"],
    }
