"""Tiny checkpoints written in both containers from the same weights, as converters write them.

Weights are made from their names alone, by a bit generator whose stream NumPy promises never to change: the oracle and the
tests make the same ones, and none are kept.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from tests.support import hybrid_configs, mxfp4
from tests.support import mixture_checkpoints as mixture
from tests.support.family_configs import Config, shapes

Floats = NDArray[np.float32]
Weights = dict[str, Floats]


def make_weights(config: Config) -> Weights:
    found = {name: _make(config, name, shape) for name, shape in shapes(config).items()}
    if mixture.is_packed(config):
        found |= {name: mixture.rounded(weight) for name, weight in found.items() if weight.ndim == 3}
    return found


def _make(config: Config, name: str, shape: tuple[int, ...]) -> Floats:
    raw = np.random.Philox(key=zlib.crc32(name.encode())).random_raw(int(np.prod(shape)))
    noise = ((raw >> np.uint64(40)).astype(np.float64) / 2**23 - 1).astype(np.float32).reshape(shape)
    gemma, tied = config["model_type"].startswith("gemma"), config.get("tie_word_embeddings", True)
    if name.endswith(".sinks"):
        return noise * np.float32(3)
    if name.endswith("bias"):
        return noise * np.float32(0.4)
    if name.endswith("A_log"):
        return noise * np.float32(2)
    if "norm" in name or ".ln_" in name:
        # Small embeddings that are heads too need large rows to give logits that differ.
        last = ("model.norm.weight", "model.embedding_norm.weight", "transformer.ln_f.weight")
        shifted = gemma or (config["model_type"] in hybrid_configs.KINDS and hybrid_configs.is_shifted(config, name))
        return (noise * np.float32(0.4) + 1) * np.float32(5.0 if tied and name in last else 1.0) - np.float32(shifted)
    if any(table in name for table in ("embed_tokens", "wte", "wpe", "lm_head")):
        # Were they as large as what layers add, a tied model would only repeat its input.
        size = 0.2 if tied else 0.6
        scaled = config.get("embedding_multiplier", config["hidden_size"] ** 0.5 if gemma else 1.0)
        return noise * np.float32(size / scaled)
    # Scores that differ by a few units, so that what attention looks at matters.
    gain = 2.8 if any(part in name for part in ("q_proj", "k_proj", "qkv", "c_attn")) else 1.7
    inputs = shape[0] if config["model_type"] == "gpt2" else shape[1]
    return noise * np.float32(gain / np.sqrt(inputs))


def write_snapshot(folder: Path, config: Config, weights: Weights) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(
        mixture.packed(weights) if mixture.is_packed(config) else weights,
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    return folder


_FIXED = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
    "transformer.wte.weight": "token_embd.weight",
    "transformer.wpe.weight": "position_embd.weight",
    "transformer.ln_f.weight": "output_norm.weight",
    "transformer.ln_f.bias": "output_norm.bias",
}
_PARTS = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    **mixture.GGUF_PARTS,
    "ln_1": "attn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "ln_2": "ffn_norm",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}
_SANDWICH = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_SANDWICHED = ("gemma2", "gemma3_text", "olmo2", "gpt_oss")
_PERMUTED = ("llama", "mistral", "mixtral", "granite", "smollm3")
"""Families that llama.cpp turns by neighbouring pairs."""


_GGUF_ARCHITECTURES = {
    "mistral": "llama",
    "mixtral": "llama",
    "gemma3_text": "gemma3",
    "qwen3_moe": "qwen3moe",
    "gpt_oss": "gpt-oss",
    **hybrid_configs.KINDS,
}


def gguf_name(config: Config, name: str) -> str:
    if config["model_type"] in hybrid_configs.KINDS:
        return hybrid_configs.gguf_name(name)
    if name in _FIXED:
        return _FIXED[name]
    parts = _PARTS | _SANDWICH if config["model_type"] in _SANDWICHED else _PARTS
    layer, _, rest = name.removeprefix("model.layers.").removeprefix("transformer.h.").partition(".")
    stem, _, kind = rest.rpartition(".")
    return f"blk.{layer}.{parts[stem]}.{kind}"


def permute(weight: Floats, heads: int) -> Floats:
    """Rows of each head from halves to neighbouring pairs: what converters do to llama's q and k."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def converted(config: Config, name: str, weight: Floats) -> Floats:
    """A weight as llama.cpp's converter stores it."""
    family = config["model_type"]
    if family in hybrid_configs.KINDS:
        return hybrid_configs.converted(config, name, weight)
    if family in _PERMUTED and ".q_proj" in name:
        return permute(weight, config["num_attention_heads"])
    if family in _PERMUTED and ".k_proj" in name:
        return permute(weight, config["num_key_value_heads"])
    if family.startswith("gemma") and "norm" in name:
        return weight + np.float32(1)
    if family == "gpt2" and weight.ndim == 2 and ".h." in name:
        return weight.T
    return weight


def write_gguf(path: Path, config: Config, weights: Weights, *, byte_tokens: bool = False, **more: Any) -> Path:
    """A GGUF of these weights; ``more`` are metadata keys without the architecture's prefix (None leaves one out). With
    ``byte_tokens`` it has a tokenizer of 259 tokens, in which each byte is one."""
    architecture = _GGUF_ARCHITECTURES.get(config["model_type"], config["model_type"])
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in (_metadata(config) | more).items():
        name = f"{architecture}.{key}"
        if isinstance(value, bool):
            writer.add_bool(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)
        elif isinstance(value, float):
            writer.add_float32(name, value)
        elif isinstance(value, list):
            writer.add_array(name, value)
        elif value is not None:
            writer.add_uint32(name, value)
    if byte_tokens:
        _add_byte_tokens(writer)
    for name, weight in mixture.as_converted(hybrid_configs.unfused(config, weights)).items():
        rows = np.ascontiguousarray(converted(config, name, weight))
        if rows.ndim == 3 and mixture.is_packed(config):
            rows = mxfp4.gguf_rows(*mxfp4.quantise(rows))
            writer.add_tensor(gguf_name(config, name), rows, raw_dtype=gguf.GGMLQuantizationType.MXFP4)
        else:
            writer.add_tensor(gguf_name(config, name), rows)
    for name, factors in _rope_tensors(config).items():
        writer.add_tensor(name, np.asarray(factors, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_byte_tokens(writer: gguf.GGUFWriter) -> None:
    kinds = gguf.TokenType
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))])
    writer.add_token_scores([0.0] * 259)
    writer.add_token_types([kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL, *[kinds.BYTE] * 256])


def _metadata(config: Config) -> dict[str, Any]:
    if config["model_type"] in hybrid_configs.KINDS:
        return hybrid_configs.metadata(config) | mixture.metadata(config)
    if config["model_type"] == "gpt2":
        return {
            "context_length": config["n_ctx"],
            "embedding_length": config["n_embd"],
            "block_count": config["n_layer"],
            "feed_forward_length": 4 * config["n_embd"],
            "attention.head_count": config["n_head"],
            "attention.layer_norm_epsilon": config["layer_norm_epsilon"],
        }
    found = {
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "block_count": config["num_hidden_layers"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "rope.freq_base": config["rope_theta"],
        "attention.key_length": config.get("head_dim"),
        "attention.value_length": config.get("head_dim"),
        "attention.sliding_window": config.get("sliding_window"),
        "attn_logit_softcapping": config.get("attn_logit_softcapping"),
        "final_logit_softcapping": config.get("final_logit_softcapping"),
        "embedding_scale": config.get("embedding_multiplier"),
        "attention.scale": config.get("attention_multiplier"),
        "residual_scale": config.get("residual_multiplier"),
        "logit_scale": config.get("logits_scaling"),
    }
    return found | mixture.metadata(config) | _rope_metadata(config)


def _rope_metadata(config: Config) -> dict[str, Any]:
    scaling = config.get("rope_scaling") or {}
    kind = scaling.get("rope_type", scaling.get("type"))
    if config["model_type"] == "phi3":
        width = config["hidden_size"] // config["num_attention_heads"]
        original, longest = config["original_max_position_embeddings"], config["max_position_embeddings"]
        grown = float(np.sqrt(1 + np.log(longest / original) / np.log(original)))
        return {
            "rope.dimension_count": int(config.get("partial_rotary_factor", 1.0) * width),
            "rope.scaling.original_context_length": original,
            "rope.scaling.attn_factor": grown if kind == "longrope" else None,
            "attention.sliding_window": config["sliding_window"] or 0,
        }
    if kind not in ("linear", "yarn"):
        return {}
    return {
        "rope.scaling.type": kind,
        "rope.scaling.factor": scaling["factor"],
        "rope.scaling.original_context_length": scaling.get("original_max_position_embeddings"),
    }


def _rope_tensors(config: Config) -> dict[str, Any]:
    """Divisors of frequencies, where the converter works them out."""
    scaling = config.get("rope_scaling") or {}
    if scaling.get("type") == "longrope":
        return {f"rope_factors_{n}.weight": scaling[f"{n}_factor"] for n in ("long", "short")}
    if scaling.get("rope_type") != "llama3":
        return {}
    width = config["hidden_size"] // config["num_attention_heads"]
    waves = 2 * np.pi * config["rope_theta"] ** (np.arange(0, width, 2) / width)
    turns = scaling["original_max_position_embeddings"] / waves
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    return {"rope_freqs.weight": 1 / ((1 - smooth) / scaling["factor"] + smooth)}
