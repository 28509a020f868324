"""From a checkpoint's own architecture name to its family."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol, cast

from pie_edge.errors import BadCheckpoint, Unsupported
from pie_edge.model.check import check
from pie_edge.model.spec import GGUF, Facts, Family, Spec

_ALIASES = {
    "gemma3_text": "gemma3",
    "qwen3_5_text": "qwen3_5",
    "qwen35": "qwen3_5",
    "qwen3moe": "qwen3_moe",
    "qwen3next": "qwen3_next",
    "gpt-oss": "gpt_oss",
}
_NAMES = (
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "gemma",
    "gemma2",
    "gemma3",
    "phi3",
    "olmo2",
    "granite",
    "smollm3",
    "gpt2",
    "lfm2",
    "qwen3_5",
    "qwen3_next",
    "mixtral",
    "qwen3_moe",
    "gpt_oss",
)
FAMILIES = {name: f"pie_edge.model.{_ALIASES.get(name, name)}" for name in (*_NAMES, *_ALIASES)}
"""Architecture names as GGUF (``general.architecture``) and Hugging Face (``model_type``) write them."""


def family(facts: Facts) -> Family:
    """The family of a checkpoint. Raises Unsupported naming the nearest one known."""
    architecture = facts.architecture
    if architecture == "llama" and facts.container == GGUF and facts.integer("expert_count", 0):
        architecture = "mixtral"  # Its GGUF files say llama.
    if architecture not in FAMILIES:
        near = difflib.get_close_matches(architecture, FAMILIES, n=1, cutoff=0.0)
        raise Unsupported(
            f"{facts.path}: architecture {architecture!r} is not known to this version; it knows {', '.join(_NAMES)}"
            f" (nearest: {near[0]}). Import a model of one of these"
        )
    return cast(Family, importlib.import_module(FAMILIES[architecture]))


class TensorLike(Protocol):
    @property
    def shape(self) -> tuple[int, ...]: ...


class CheckpointLike(Protocol):
    """An open checkpoint, as far as families care."""

    @property
    def path(self) -> Any: ...
    @property
    def container(self) -> str: ...
    @property
    def architecture(self) -> str: ...
    @property
    def config(self) -> Mapping[str, Any]: ...
    @property
    def tensors(self) -> Mapping[str, TensorLike]: ...


def facts(checkpoint: CheckpointLike, context: int = 0) -> Facts:
    """What families read. ``context`` is how many positions are wanted; 0 leaves it to the checkpoint."""
    shapes = {name: tensor.shape for name, tensor in checkpoint.tensors.items()}
    return Facts(
        str(checkpoint.path), checkpoint.container, checkpoint.architecture, checkpoint.config, shapes, context
    )


def _check_layers(facts: Facts) -> None:
    """Before anything is listed by layer: a count from a damaged file may be in the billions."""
    nested = facts.metadata.get("text_config")
    for held in (facts.metadata, nested if isinstance(nested, Mapping) else {}):
        for key in (f"{facts.architecture}.block_count", "num_hidden_layers", "n_layer"):
            stated = held.get(key)
            if isinstance(stated, int) and stated > len(facts.tensors):
                raise BadCheckpoint(
                    f"{facts.path}: the metadata says {stated} layers, and the file has {len(facts.tensors)} tensors; "
                    "fetch the file again"
                )


def _check_causal(facts: Facts) -> None:
    """Some models that embed attend to later tokens, too: their families' names are those of models that don't."""
    stated = facts.metadata
    gguf = stated.get(f"{facts.architecture}.attention.causal") is False
    if gguf or stated.get("use_bidirectional_attention") is True or stated.get("is_causal") is False:
        raise facts.refuse("attention to later tokens")


def read(facts: Facts) -> Spec:
    """The checked Spec of a checkpoint: every weight is there in the right shape."""
    chosen = family(facts)
    _check_causal(facts)
    _check_layers(facts)
    spec = cast(Spec, chosen.read(facts))
    check(facts, spec, chosen.weights(spec))
    if facts.wanted > spec.context:
        raise Unsupported(
            f"{facts.path}: a context of {facts.wanted} positions is wanted, and the model is good for {spec.context}; "
            "lower context in the configuration"
        )
    return replace(spec, context=facts.wanted or spec.context)
