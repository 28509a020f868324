"""Configurations of tiny models of every family, as their ``config.json`` writes them, and what weights they have."""

from __future__ import annotations

from typing import Any

from tests.support import hybrid_configs, mixture_checkpoints
from tests.support.mixture_checkpoints import Shapes

Config = dict[str, Any]

LLAMA: Config = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_act": "silu",
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}
_TIED = {"tie_word_embeddings": True}


def _like_llama(model_type: str, architecture: str, **more: Any) -> Config:
    return LLAMA | {"model_type": model_type, "architectures": [f"{architecture}ForCausalLM"]} | more


_GEMMA = _like_llama("gemma", "Gemma", head_dim=32, num_key_value_heads=1, hidden_act="gelu_pytorch_tanh", **_TIED)
_GEMMA2 = _GEMMA | {
    "model_type": "gemma2",
    "architectures": ["Gemma2ForCausalLM"],
    "hidden_activation": "gelu_pytorch_tanh",
    "num_key_value_heads": 2,
    "sliding_window": 8,
    "query_pre_attn_scalar": 32,
    "attn_logit_softcapping": 4.0,
    "final_logit_softcapping": 3.0,
}
_GEMMA3 = _GEMMA | {
    "model_type": "gemma3_text",
    "architectures": ["Gemma3ForCausalLM"],
    "hidden_activation": "gelu_pytorch_tanh",
    "num_hidden_layers": 7,
    "hidden_size": 32,
    "head_dim": 16,
    "intermediate_size": 64,
    "rope_theta": 1000000.0,
    "rope_local_base_freq": 10000.0,
    "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    "sliding_window": 8,
    "query_pre_attn_scalar": 16,
}
_PHI3 = _like_llama("phi3", "Phi3", pad_token_id=0, sliding_window=None, original_max_position_embeddings=256)
_SHORT, _LONG = [1.0, 1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0], [1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0]


def _longrope(values: int) -> Config:
    return {"type": "longrope", "short_factor": _SHORT[:values], "long_factor": _LONG[:values]}


_GPT2: Config = {
    "model_type": "gpt2",
    "architectures": ["GPT2LMHeadModel"],
    "activation_function": "gelu_new",
    "vocab_size": 96,
    "n_embd": 64,
    "n_inner": None,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": 64,
    "n_ctx": 64,
    "layer_norm_epsilon": 1e-5,
}

_QWEN3_MOE = _like_llama(
    *("qwen3_moe", "Qwen3Moe"),
    head_dim=32,
    num_experts=8,
    num_experts_per_tok=3,
    moe_intermediate_size=24,
    norm_topk_prob=True,
    decoder_sparse_step=1,
    mlp_only_layers=[],
)
_GPT_OSS = _like_llama(
    *("gpt_oss", "GptOss"),
    attention_bias=True,
    head_dim=32,
    hidden_size=64,
    intermediate_size=32,
    num_hidden_layers=4,
    num_local_experts=5,
    num_experts_per_tok=2,
    rope_theta=150000.0,
    rope_scaling={
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 64,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
    },
    sliding_window=8,
    layer_types=["sliding_attention", "full_attention"] * 2,
)

CONFIGS: dict[str, Config] = {
    "llama": LLAMA,
    "llama-llama3": LLAMA
    | {
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        }
    },
    "llama-linear": LLAMA | {"rope_scaling": {"type": "linear", "factor": 4.0}},
    "llama-yarn": LLAMA
    | {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}},
    "mistral": _like_llama("mistral", "Mistral", head_dim=32, sliding_window=8),
    "qwen2": _like_llama("qwen2", "Qwen2", **_TIED),
    "qwen2-window": _like_llama(
        "qwen2", "Qwen2", use_sliding_window=True, sliding_window=8, max_window_layers=1, **_TIED
    ),
    "qwen3": _like_llama("qwen3", "Qwen3", head_dim=32, **_TIED),
    "gemma": _GEMMA,
    "gemma2": _GEMMA2,
    "gemma3": _GEMMA3,
    "phi3": _PHI3 | {"sliding_window": 8},
    "phi3-short": _PHI3 | {"original_max_position_embeddings": 64, "rope_scaling": _longrope(8)},
    "phi3-long": _PHI3 | {"original_max_position_embeddings": 32, "rope_scaling": _longrope(8)},
    "phi4": _PHI3
    | {"original_max_position_embeddings": 64, "partial_rotary_factor": 0.75, "rope_scaling": _longrope(6)}
    | _TIED,
    "olmo2": _like_llama("olmo2", "Olmo2"),
    "granite": _like_llama(
        *("granite", "Granite"),
        embedding_multiplier=12.0,
        attention_multiplier=0.15,
        residual_multiplier=0.22,
        logits_scaling=0.5,
    ),
    "smollm3": _like_llama("smollm3", "SmolLM3", num_hidden_layers=4, pad_token_id=0, **_TIED),
    "gpt2": _GPT2,
    **hybrid_configs.CONFIGS,
    "mixtral": _like_llama(
        *("mixtral", "Mixtral"), num_local_experts=5, num_experts_per_tok=2, intermediate_size=40, sliding_window=None
    ),
    "qwen3-moe": _QWEN3_MOE,
    "qwen3-moe-shares": _QWEN3_MOE | {"norm_topk_prob": False},
    "gpt-oss": _GPT_OSS,
    "gpt-oss-mxfp4": _GPT_OSS | {"quantization_config": {"quant_method": "mxfp4"}},
}
"""By the name of their fixture: a family, or a family and what is special about it."""

CONTEXT = {"phi3-long": 128}
"""What is asked of those whose context is a choice."""

NOT_IN_GGUF = {
    "qwen2-window": "the format has no key for the layer where windows begin",
    **hybrid_configs.NOT_IN_GGUF,
    "qwen3-moe-shares": "the format has no key for weights that aren't one in all",
}

MIXTURES = ("mixtral", "qwen3_moe", "gpt_oss")


def shapes(config: Config) -> Shapes:
    """Every weight by its Hugging Face name."""
    if config["model_type"] in hybrid_configs.KINDS:
        return hybrid_configs.shapes(config)
    return _gpt2_shapes(config) if config["model_type"] == "gpt2" else _decoder_shapes(config)


def _gpt2_shapes(config: Config) -> Shapes:
    hidden = config["n_embd"]
    found: Shapes = {
        "transformer.wte.weight": (config["vocab_size"], hidden),
        "transformer.wpe.weight": (config["n_positions"], hidden),
    }
    for i in range(config["n_layer"]):
        layer = f"transformer.h.{i}."
        matrices = {"attn.c_attn": (hidden, 3 * hidden), "attn.c_proj": (hidden, hidden)}
        matrices |= {"mlp.c_fc": (hidden, 4 * hidden), "mlp.c_proj": (4 * hidden, hidden)}
        found |= {f"{layer}{name}.weight": shape for name, shape in matrices.items()}
        found |= {f"{layer}{name}.bias": shape[1:] for name, shape in matrices.items()}
        found |= {f"{layer}{norm}.{part}": (hidden,) for norm in ("ln_1", "ln_2") for part in ("weight", "bias")}
    return found | {f"transformer.ln_f.{part}": (hidden,) for part in ("weight", "bias")}


def _decoder_shapes(config: Config) -> Shapes:
    hidden, table = config["hidden_size"], (config["vocab_size"], config["hidden_size"])
    found: Shapes = {"model.embed_tokens.weight": table}
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        found |= {layer + name: shape for name, shape in (_attention(config) | _mlp(config) | _norms(config)).items()}
    found["model.norm.weight"] = (hidden,)
    return found if config["tie_word_embeddings"] else found | {"lm_head.weight": table}


def _attention(config: Config) -> Shapes:
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    dim = config.get("head_dim") or hidden // heads
    q, kv, family = heads * dim, config["num_key_value_heads"] * dim, config["model_type"]
    if family == "phi3":
        return {"self_attn.qkv_proj.weight": (q + 2 * kv, hidden), "self_attn.o_proj.weight": (hidden, q)}
    found: Shapes = {f"self_attn.{p}_proj.weight": (n, hidden) for p, n in (("q", q), ("k", kv), ("v", kv))}
    if family in ("qwen2", "gpt_oss"):
        found |= {f"self_attn.{p}_proj.bias": (n,) for p, n in (("q", q), ("k", kv), ("v", kv))}
    if family == "gpt_oss":
        found |= {"self_attn.o_proj.bias": (hidden,), "self_attn.sinks": (heads,)}
    if family in ("qwen3", "qwen3_moe", "gemma3_text"):
        found |= {f"self_attn.{p}_norm.weight": (dim,) for p in "qk"}
    if family == "olmo2":
        found |= {"self_attn.q_norm.weight": (q,), "self_attn.k_norm.weight": (kv,)}
    return found | {"self_attn.o_proj.weight": (hidden, q)}


def _mlp(config: Config) -> Shapes:
    if config["model_type"] in MIXTURES:
        return mixture_checkpoints.shapes(config)
    hidden, mlp = config["hidden_size"], config["intermediate_size"]
    found: Shapes = {"mlp.down_proj.weight": (hidden, mlp)}
    if config["model_type"] == "phi3":
        return found | {"mlp.gate_up_proj.weight": (2 * mlp, hidden)}
    return found | {f"mlp.{p}_proj.weight": (mlp, hidden) for p in ("gate", "up")}


def _norms(config: Config) -> Shapes:
    names = ["input_layernorm", "post_attention_layernorm"]
    if config["model_type"] in ("gemma2", "gemma3_text"):
        names += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
    if config["model_type"] == "olmo2":
        names = ["post_attention_layernorm", "post_feedforward_layernorm"]
    return {f"{name}.weight": (config["hidden_size"],) for name in names}
