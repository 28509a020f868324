"""The fixtures of ``scripts/family-oracle``: what an independent implementation says of each tiny model."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.support.family_checkpoints import make_weights, write_gguf, write_snapshot
from tests.support.family_configs import CONFIGS, CONTEXT, NOT_IN_GGUF

FOLDER = Path(__file__).resolve().parents[1] / "data" / "families"
CASES = [
    (name, container)
    for name in CONFIGS
    for container in ("safetensors", "gguf")
    if container == "safetensors" or name not in NOT_IN_GGUF
]


@dataclass(frozen=True)
class Oracle:
    name: str
    config: dict[str, Any]
    prompt: list[int]
    greedy: list[int]
    logits: NDArray[np.float32]
    """Of every position of the prompt and the greedy tokens but the last."""

    @property
    def tokens(self) -> list[int]:
        return self.prompt + self.greedy[:-1]

    @property
    def context(self) -> int:
        """What is asked of the model, 0 for its own choice."""
        return CONTEXT.get(self.name, 0)

    def write(self, folder: Path, container: str) -> Path:
        weights = make_weights(self.config)
        if container == "gguf":
            return write_gguf(folder / "model.gguf", self.config, weights)
        return write_snapshot(folder / "snapshot", self.config, weights)


def read(name: str) -> Oracle:
    held = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    logits = np.frombuffer(base64.b64decode(held["logits"]), "<f4").reshape(-1, held["config"]["vocab_size"])
    return Oracle(name, held["config"], held["prompt"], held["greedy"], logits)
