"""Low-rank adapters of the tiny models, as PEFT saves them: made from their names alone, so that none are kept."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from tests.support.family_configs import CONFIGS, Config, shapes

Floats = NDArray[np.float32]
FOLDER = Path(__file__).resolve().parents[1] / "data" / "adapters"
_ATTENTION, _MLP = ["q_proj", "k_proj", "v_proj", "o_proj"], ["gate_proj", "up_proj", "down_proj"]

ADAPTERS: dict[str, dict[str, dict[str, Any]]] = {
    "llama": {
        "one": {"r": 4, "lora_alpha": 8, "target_modules": _ATTENTION + _MLP},
        "other": {"r": 12, "lora_alpha": 6, "use_rslora": True, "target_modules": ["q_proj", "v_proj"]},
        "mixed": {
            "r": 3,
            "lora_alpha": 3,
            "rank_pattern": {"q_proj": 9},
            "alpha_pattern": {"layers.1.mlp.down_proj": 12},
            "target_modules": ["q_proj", "k_proj", "down_proj"],
        },
    },
    "phi3": {
        "fused": {"r": 5, "lora_alpha": 10, "target_modules": ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]}
    },
    "gpt2": {
        "conv": {"r": 8, "lora_alpha": 16, "fan_in_fan_out": True, "target_modules": ["c_attn", "c_proj", "c_fc"]}
    },
}
"""Of each tiny model, by name: what its adapters' configurations say."""


def settings(model: str, name: str) -> dict[str, Any]:
    """An ``adapter_config.json``."""
    return {"peft_type": "LORA", "task_type": "CAUSAL_LM", "bias": "none"} | ADAPTERS[model][name]


def write_adapter(folder: Path, model: str, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(settings(model, name)), encoding="utf-8")
    save_file(make_matrices(CONFIGS[model], settings(model, name)), folder / "adapter_model.safetensors")
    return folder


def make_matrices(config: Config, adapter: dict[str, Any]) -> dict[str, Floats]:
    """A and B of every module that the adapter names, under the names in its file."""
    found = {}
    for weight, shape in shapes(config).items():
        module = weight.removesuffix(".weight")
        if module == weight or module.rpartition(".")[2] not in adapter["target_modules"]:
            continue
        rows, columns = shape[::-1] if config["model_type"] == "gpt2" else shape
        rank = next((r for end, r in adapter.get("rank_pattern", {}).items() if module.endswith(end)), adapter["r"])
        stem = f"base_model.model.{module}"
        found[f"{stem}.lora_A.weight"] = _noise(f"{stem}.A{rank}", (rank, columns)) / np.float32(np.sqrt(columns))
        found[f"{stem}.lora_B.weight"] = _noise(f"{stem}.B{rank}", (rows, rank)) * np.float32(0.5)
    return found


def _noise(name: str, shape: tuple[int, int]) -> Floats:
    raw = np.random.Philox(key=zlib.crc32(name.encode())).random_raw(shape[0] * shape[1])
    return ((raw >> np.uint64(40)).astype(np.float64) / 2**23 - 1).astype(np.float32).reshape(shape)


@dataclass(frozen=True)
class AdapterOracle:
    tokens: list[int]
    logits: dict[str, Floats]
    """Of each adapter, at every position: [tokens, vocabulary]."""


def read(model: str) -> AdapterOracle:
    held = json.loads((FOLDER / f"{model}.json").read_text(encoding="utf-8"))
    width = CONFIGS[model]["vocab_size"]
    logits = {
        name: np.frombuffer(base64.b64decode(text), "<f4").reshape(-1, width) for name, text in held["logits"].items()
    }
    return AdapterOracle(held["tokens"], logits)
