"""What tiny mixtures of experts have in their checkpoints: shapes by Hugging Face's names, and what converters make of them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.support import mxfp4

Config = dict[str, Any]
Shapes = dict[str, tuple[int, ...]]
Floats = NDArray[np.float32]

_EXPERT = re.compile(r"(.+\.experts)\.(\d+)\.(.+)")
GGUF_PARTS = {
    "block_sparse_moe.gate": "ffn_gate_inp",
    "block_sparse_moe.experts.w1": "ffn_gate_exps",
    "block_sparse_moe.experts.w2": "ffn_down_exps",
    "block_sparse_moe.experts.w3": "ffn_up_exps",
    "mlp.gate": "ffn_gate_inp",
    "mlp.router": "ffn_gate_inp",
    "mlp.experts.gate_proj": "ffn_gate_exps",
    "mlp.experts.up_proj": "ffn_up_exps",
    "mlp.experts.down_proj": "ffn_down_exps",
    "self_attn.sinks": "attn_sinks",
}


def is_packed(config: Config) -> bool:
    return (config.get("quantization_config") or {}).get("quant_method") == "mxfp4"


def shapes(config: Config) -> Shapes:
    """A layer's mixture, for configurations that have one."""
    hidden, experts = config["hidden_size"], config.get("num_local_experts") or config.get("num_experts", 0)
    if config["model_type"] == "mixtral":
        sizes = {"w1": (config["intermediate_size"], hidden), "w3": (config["intermediate_size"], hidden)}
        return _by_expert("block_sparse_moe", experts, hidden, sizes | {"w2": (hidden, config["intermediate_size"])})
    if config["model_type"] == "qwen3_moe":
        width = config["moe_intermediate_size"]
        sizes = {"gate_proj": (width, hidden), "up_proj": (width, hidden), "down_proj": (hidden, width)}
        return _by_expert("mlp", experts, hidden, sizes)
    width = config["intermediate_size"]
    return {
        "mlp.router.weight": (experts, hidden),
        "mlp.router.bias": (experts,),
        "mlp.experts.gate_up_proj": (experts, hidden, 2 * width),
        "mlp.experts.gate_up_proj_bias": (experts, 2 * width),
        "mlp.experts.down_proj": (experts, width, hidden),
        "mlp.experts.down_proj_bias": (experts, hidden),
    }


def _by_expert(block: str, experts: int, hidden: int, sizes: Shapes) -> Shapes:
    found: Shapes = {f"{block}.gate.weight": (experts, hidden)}
    return found | {
        f"{block}.experts.{i}.{part}.weight": shape for i in range(experts) for part, shape in sizes.items()
    }


def rounded(weight: Floats) -> Floats:
    """A transposed matrix of each expert with values that MXFP4 has."""
    return np.ascontiguousarray(mxfp4.dequantise(*mxfp4.quantise(weight.swapaxes(1, 2))).swapaxes(1, 2))


def packed(weights: dict[str, Floats]) -> dict[str, Any]:
    """The experts' matrices as blocks and scales."""
    found: dict[str, Any] = {}
    for name, weight in weights.items():
        if weight.ndim < 3:
            found[name] = weight
        else:
            codes, scales = mxfp4.quantise(np.ascontiguousarray(weight.swapaxes(1, 2)))
            found |= {f"{name}_blocks": mxfp4.blocks(codes), f"{name}_scales": scales}
    return found


def as_converted(weights: dict[str, Floats]) -> dict[str, Floats]:
    """The experts' matrices stacked, and apart where Hugging Face has two in one."""
    found: dict[str, Any] = {}
    stacks: dict[str, list[Floats]] = {}
    for name, weight in weights.items():
        if match := _EXPERT.fullmatch(name):
            stacks.setdefault(f"{match[1]}.{match[3]}", []).append(weight)
        elif name.endswith(".sinks"):
            found[f"{name}.weight"] = weight
        elif ".experts." in name:
            found |= _apart(name, weight)
        else:
            found[name] = weight
    return found | {name: np.stack(matrices) for name, matrices in stacks.items()}


def _apart(name: str, weight: Floats) -> dict[str, Floats]:
    stem, kind = (name.removesuffix("_bias"), "bias") if name.endswith("_bias") else (name, "weight")
    rows = weight if kind == "bias" else weight.swapaxes(1, 2)
    if not stem.endswith("gate_up_proj"):
        return {f"{stem}.{kind}": rows}
    return {stem.replace("gate_up", part) + f".{kind}": rows[:, turn::2] for turn, part in enumerate(("gate", "up"))}


def metadata(config: Config) -> dict[str, Any]:
    """The keys of a GGUF."""
    return {
        "expert_count": config.get("num_local_experts") or config.get("num_experts"),
        "expert_used_count": config.get("num_experts_per_tok"),
        "expert_feed_forward_length": config.get("moe_intermediate_size"),
        "expert_shared_feed_forward_length": config.get("shared_expert_intermediate_size"),
    }
