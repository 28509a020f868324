"""Low-rank adapters as PEFT writes them: a folder with ``adapter_config.json`` and ``adapter_model.safetensors``.

LoRA (arXiv:2106.09685) adds ``scale · B (A x)`` to what a matrix gives. Here B has the scale in it already. What PEFT knows
beyond that (DoRA, trained biases, replaced modules, adapted embeddings) is refused by name: leaving a part out would be a
different model.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pie_edge.errors import BadCheckpoint, ModelNotFound, Unsupported
from pie_edge.weights.dequantise import dequantise
from pie_edge.weights.safetensors import read_json, read_safetensors
from pie_edge.weights.tensor import Tensor

Floats = NDArray[np.float32]
CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
MOST_RANK = 512

_PREFIX = "base_model.model."
_NAME = re.compile(r"(?P<module>.+)\.lora_(?P<side>[AB])(?:\.default)?\.weight")
_REFUSED = {"use_dora": "DoRA", "use_qalora": "QALoRA", "lora_bias": "biases of B", "alora_invocation_tokens": "aLoRA"}
"""Switches of the configuration that change what an adapter computes."""


@dataclass(frozen=True)
class Adapter:
    """Of each module, by its name in the model's own code, A ``[rank, in]`` and the scaled B ``[out, rank]``."""

    path: Path
    modules: Mapping[str, tuple[Floats, Floats]]

    @property
    def rank(self) -> int:
        """The largest."""
        return max(len(a) for a, _ in self.modules.values())


def read_peft(folder: Path) -> Adapter:
    """Raises ModelNotFound, BadCheckpoint, or Unsupported for what isn't plain LoRA."""
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise ModelNotFound(
                f"{folder} has no {name}; an adapter is a folder that PEFT's save_pretrained has written, in safetensors"
            )
    config = read_json(folder / CONFIG)
    _check_kind(folder, config)
    file = read_safetensors(folder / WEIGHTS)
    try:
        return Adapter(folder, _modules(folder, config, file.tensors))
    finally:
        for source in file.sources:
            source.close()


def _check_kind(folder: Path, config: Mapping[str, Any]) -> None:
    kind = config.get("peft_type")
    if kind != "LORA":
        raise Unsupported(f"{folder}: the adapter's peft_type is {kind!r}; this version knows LORA")
    found = [what for key, what in _REFUSED.items() if config.get(key)]
    if config.get("bias", "none") != "none":
        found.append(f"bias {config['bias']!r}")
    if config.get("modules_to_save"):
        found.append(f"modules_to_save {config['modules_to_save']}")
    if found:
        raise Unsupported(
            f"{folder}: the adapter has {', '.join(found)}, and this version knows plain LoRA; train it without"
        )


def _modules(
    folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> dict[str, tuple[Floats, Floats]]:
    sides: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        found = _NAME.fullmatch(name)
        if found is None:
            raise Unsupported(
                f"{folder}: tensor {name!r} is no A or B of a LoRA matrix; train the adapter without what it belongs to"
            )
        sides.setdefault(found["module"].removeprefix(_PREFIX), {})[found["side"]] = tensor
    if not sides:
        raise BadCheckpoint(f"{folder}: {WEIGHTS} holds no LoRA matrices; save the adapter again")
    return {module: _pair(folder, config, module, pair) for module, pair in sides.items()}


def _pair(folder: Path, config: Mapping[str, Any], module: str, pair: Mapping[str, Tensor]) -> tuple[Floats, Floats]:
    if set(pair) != {"A", "B"}:
        raise BadCheckpoint(f"{folder}: {module} has lora_{next(iter(pair))} alone; save the adapter again")
    if any(len(tensor.shape) != 2 for tensor in pair.values()) or pair["A"].shape[0] != pair["B"].shape[1]:
        shapes = f"{list(pair['A'].shape)} and {list(pair['B'].shape)}"
        raise BadCheckpoint(f"{folder}: A and B of {module} are {shapes}, which don't multiply; save the adapter again")
    rank = pair["A"].shape[0]
    if not 0 < rank <= MOST_RANK:
        raise Unsupported(f"{folder}: {module} has rank {rank}; this version takes 1 to {MOST_RANK}")
    declared = _number(folder, config, "r", _by_pattern(config, "rank_pattern", module))
    if declared != rank:
        raise BadCheckpoint(
            f"{folder}: {module} has rank {rank}, and the configuration says {declared:g}; save it again"
        )
    alpha = _number(folder, config, "lora_alpha", _by_pattern(config, "alpha_pattern", module))
    scale = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
    a, b = (_floats(pair[side]) for side in ("A", "B"))
    scaled = np.asarray(b * np.float32(scale), np.float32)
    if not (np.isfinite(a).all() and np.isfinite(scaled).all()):
        raise BadCheckpoint(
            f"{folder}: A or B of {module} has values that are no finite numbers; train the adapter again"
        )
    return a, scaled


def _by_pattern(config: Mapping[str, Any], key: str, module: str) -> Any:
    """A module's own value: patterns are the ends of modules' names, or regular expressions for them."""
    patterns = config.get(key)
    for pattern, value in patterns.items() if isinstance(patterns, dict) else ():
        try:
            if re.fullmatch(rf"(.*\.)?({pattern})", module):
                return value
        except re.error:
            continue
    return None


def _number(folder: Path, config: Mapping[str, Any], key: str, own: Any) -> float:
    value = config.get(key) if own is None else own
    # Compared as it is: a whole number of hundreds of digits can't be made a float to be looked at.
    if isinstance(value, bool) or not isinstance(value, int | float) or not -(2**1023) < value < 2**1023:
        raise BadCheckpoint(f"{folder}: {key} of the adapter is {_brief(value)}; a number is required")
    return float(value)


def _brief(value: Any) -> str:
    return f"{value:#x}"[:40] if isinstance(value, int) and not isinstance(value, bool) else repr(value)[:40]


def _floats(tensor: Tensor) -> Floats:
    return np.array(dequantise(tensor), np.float32).reshape(tensor.shape)
