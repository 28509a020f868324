"""A llama's GGUF as the snapshot that libraries of the Hugging Face kind read: peers that know no GGUF get the same weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pie_edge.model import registry
from pie_edge.model.llama import LlamaSpec
from pie_edge.weights.checkpoint import open_checkpoint
from pie_edge.weights.recipes import native_encoding
from pie_edge.weights.repack import repack
from pie_edge.weights.widen import dequantise_planes

_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_WHOLE = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}


def write_bfloat16(gguf: Path, folder: Path) -> Path:
    """All weights rounded to bfloat16. Raises TypeError for another family than llama's."""
    checkpoint = open_checkpoint(gguf)
    spec = registry.read(registry.facts(checkpoint))
    if not isinstance(spec, LlamaSpec):
        raise TypeError(f"{gguf} is no llama: snapshots of other families aren't written")
    tensors = {
        _name(name): _bfloat16(_turned(name, repacked(tensor), spec))
        for name, tensor in checkpoint.tensors.items()
        if _name(name)
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(_config(spec)), encoding="utf-8")
    _write(folder / "model.safetensors", tensors)
    return folder


def repacked(tensor: Any) -> NDArray[np.float32]:
    values = dequantise_planes(native_encoding(tensor.encoding), repack(tensor))
    return np.asarray(values, np.float32).reshape(tensor.shape)


def _name(name: str) -> str:
    if name in _WHOLE:
        return _WHOLE[name]
    if not name.startswith("blk."):
        return ""
    _, layer, kind, _ = name.split(".")
    return f"model.layers.{layer}.{_LAYER[kind]}.weight"


def _turned(name: str, values: NDArray[np.float32], spec: LlamaSpec) -> NDArray[np.float32]:
    """GGUF has the pairs that rope turns beside each other, the snapshot half a head apart."""
    heads = spec.heads if ".attn_q." in name else spec.kv_heads if ".attn_k." in name else 0
    if not heads:
        return values
    pairs = values.reshape(heads, -1, 2, values.shape[1])
    return pairs.swapaxes(1, 2).reshape(values.shape)


def _bfloat16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    bits = np.ascontiguousarray(values).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def _config(spec: LlamaSpec) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": spec.hidden,
        "num_hidden_layers": spec.layers,
        "intermediate_size": spec.mlp,
        "num_attention_heads": spec.heads,
        "num_key_value_heads": spec.kv_heads,
        "head_dim": spec.head_dim,
        "rms_norm_eps": spec.eps,
        "vocab_size": spec.vocabulary,
        "max_position_embeddings": spec.context,
        "rope_theta": spec.rope.base,
        "tie_word_embeddings": True,
        "hidden_act": "silu",
        "torch_dtype": "bfloat16",
    }


def _write(path: Path, tensors: dict[str, NDArray[np.uint16]]) -> None:
    header, end = dict[str, Any](), 0
    for name, values in tensors.items():
        header[name] = {"dtype": "BF16", "shape": list(values.shape), "data_offsets": [end, end + values.nbytes]}
        end += values.nbytes
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with path.open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for values in tensors.values():
            file.write(values.tobytes())
