"""What a checkpoint recommends to sample with, where nobody says otherwise.

Beside safetensors that is ``generation_config.json``; GGUF files have it under ``general.sampling``, as llama.cpp writes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pie_edge.errors import BadCheckpoint
from pie_edge.model.pooling import CheckpointLike
from pie_edge.model.spec import GGUF, brief, is_number

FILE = "generation_config.json"
Recommended = tuple[tuple[str, float], ...]
"""By the names of the SDK's ``Sampler``; what isn't recommended isn't there."""

_KEYS: Mapping[str, tuple[str, str]] = {
    "temperature": ("temperature", "temp"),
    "top_k": ("top_k", "top_k"),
    "top_p": ("top_p", "top_p"),
    "min_p": ("min_p", "min_p"),
    "repetition": ("repetition_penalty", "penalty_repeat"),
}
"""Of ``generation_config.json``, and behind ``general.sampling.``."""


def recommended(checkpoint: CheckpointLike) -> Recommended:
    """Raises BadCheckpoint for a value that means nothing."""
    gguf, files = checkpoint.container == GGUF, checkpoint.metadata
    stated = files if gguf else files.get(FILE, {})
    found = []
    for name, (key, short) in _KEYS.items():
        key = f"general.sampling.{short}" if gguf else key
        value = stated.get(key)
        if value is not None:
            found.append((name, _checked(name, key, value)))
    return tuple(found)


def _checked(name: str, key: str, value: Any) -> float:
    good = is_number(value)
    if good and name == "top_k":
        # transformers and vLLM write off as 0 and −1.
        value, good = max(value, 0), value == int(value) and value < 2**31
    elif good:
        low, high = _BOUNDS[name]
        good = low <= value <= high
    if not good:
        raise BadCheckpoint(
            f"the checkpoint recommends a {key} of {brief(value)}, which means nothing; mend or remove it, or turn the "
            "setting generation_config off"
        )
    return float(value)


_BOUNDS = {"temperature": (0.0, 1e5), "top_p": (1e-6, 1.0), "min_p": (0.0, 1.0), "repetition": (1e-6, 1e5)}
