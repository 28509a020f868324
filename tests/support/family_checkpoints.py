"""Tiny checkpoints written in both containers from the same weights, as converters write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

Floats = NDArray[np.float32]

LLAMA_CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 48,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}
GEMMA_CONFIG: dict[str, Any] = {
    "model_type": "gemma3_text",
    "architectures": ["Gemma3ForCausalLM"],
    "vocab_size": 48,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 7,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "rope_local_base_freq": 10000.0,
    "sliding_window": 8,
    "query_pre_attn_scalar": 16,
}


def _random(shapes: dict[str, tuple[int, ...]], seed: int) -> dict[str, Floats]:
    rng = np.random.default_rng(seed)
    return {name: (rng.normal(size=shape) / np.sqrt(shape[-1])).astype(np.float32) for name, shape in shapes.items()}


def llama_weights(config: dict[str, Any] = LLAMA_CONFIG, seed: int = 0) -> dict[str, Floats]:
    """Hugging Face names."""
    hidden, mlp = config["hidden_size"], config["intermediate_size"]
    kv = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config["vocab_size"], hidden)}
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        shapes |= {layer + f"self_attn.{p}_proj.weight": (n, hidden) for p, n in (("q", hidden), ("k", kv), ("v", kv))}
        shapes[layer + "self_attn.o_proj.weight"] = (hidden, hidden)
        shapes |= {layer + f"mlp.{p}_proj.weight": (mlp, hidden) for p in ("gate", "up")}
        shapes[layer + "mlp.down_proj.weight"] = (hidden, mlp)
        shapes |= {layer + n: (hidden,) for n in ("input_layernorm.weight", "post_attention_layernorm.weight")}
    shapes |= {"model.norm.weight": (hidden,), "lm_head.weight": (config["vocab_size"], hidden)}
    return _random(shapes, seed)


def gemma_weights(config: dict[str, Any] = GEMMA_CONFIG, seed: int = 0) -> dict[str, Floats]:
    hidden, mlp, dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config["vocab_size"], hidden)}
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        shapes |= {layer + f"self_attn.{p}_proj.weight": (n, hidden) for p, n in (("q", q), ("k", kv), ("v", kv))}
        shapes[layer + "self_attn.o_proj.weight"] = (hidden, q)
        shapes |= {layer + f"self_attn.{p}_norm.weight": (dim,) for p in "qk"}
        shapes |= {layer + f"mlp.{p}_proj.weight": (mlp, hidden) for p in ("gate", "up")}
        shapes[layer + "mlp.down_proj.weight"] = (hidden, mlp)
        norms = (
            "input_layernorm",
            "post_attention_layernorm",
            "pre_feedforward_layernorm",
            "post_feedforward_layernorm",
        )
        shapes |= {layer + f"{norm}.weight": (hidden,) for norm in norms}
    return _random(shapes | {"model.norm.weight": (hidden,)}, seed)


def write_snapshot(folder: Path, config: dict[str, Any], weights: dict[str, Floats]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(weights, folder / "model.safetensors")
    return folder


_GGUF_PARTS = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_LLAMA_PARTS = _GGUF_PARTS | {"post_attention_layernorm": "ffn_norm"}
_GEMMA_PARTS = _GGUF_PARTS | {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def gguf_name(name: str, parts: dict[str, str]) -> str:
    fixed = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    if name in fixed:
        return fixed[name]
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{parts[rest.removesuffix('.weight')]}.weight"


def permute(weight: Floats, heads: int) -> Floats:
    """Rows of each head from halves to neighbouring pairs: what converters do to llama's q and k."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def write_gguf(
    path: Path, config: dict[str, Any], weights: dict[str, Floats], *, byte_tokens: bool = False, **more: Any
) -> Path:
    """A GGUF of these weights; ``more`` are metadata keys without the architecture's prefix (None leaves one out). With
    ``byte_tokens`` it has a tokenizer of 259 tokens, in which each byte is one."""
    llama = config["model_type"] == "llama"
    architecture = "llama" if llama else "gemma3"
    writer = gguf.GGUFWriter(path, architecture)
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    keys: dict[str, Any] = {
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "block_count": config["num_hidden_layers"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads,
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "rope.freq_base": config["rope_theta"],
    }
    if not llama:
        keys |= {"attention.key_length": config["head_dim"], "attention.sliding_window": config["sliding_window"]}
    for key, value in (keys | more).items():
        if value is None:
            continue
        name = f"{architecture}.{key}"
        if isinstance(value, str):
            writer.add_string(name, value)
        elif isinstance(value, float):
            writer.add_float32(name, value)
        else:
            writer.add_uint32(name, value)
    if byte_tokens:
        _add_byte_tokens(writer)
    for name, weight in weights.items():
        if llama and ".q_proj" in name:
            weight = permute(weight, heads)
        elif llama and ".k_proj" in name:
            weight = permute(weight, kv_heads)
        elif not llama and "norm" in name:
            weight = weight + np.float32(1)
        writer.add_tensor(gguf_name(name, _LLAMA_PARTS if llama else _GEMMA_PARTS), np.ascontiguousarray(weight))
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
