"""What docs/models.md says of each family, in one place: a family that is added gets an entry here, and
``python -m tests.support.models_page`` measures it and writes the page."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class About:
    """A family by the name of its entry. ``templates`` are those of ``tests/data/chat`` that its models come with."""

    models: str
    beyond: str = ""
    """What it has beyond llama's layers."""
    templates: tuple[str, ...] = ()


FAMILIES: dict[str, About] = {
    "llama": About(
        "Llama 2 and 3, SmolLM2, TinyLlama; Mistral's GGUF files",
        templates=("llama3.1", "llama3.2", "r1-distill", "hermes2"),
    ),
    "mistral": About("Mistral 7B", "a window in every layer", ("mistral-nemo", "mistral-small3.2", "ministral3")),
    "qwen2": About("Qwen 2, Qwen 2.5", "biases of queries, keys and values", ("qwen2.5",)),
    "qwen3": About("Qwen 3, its dense models", "normalised queries and keys", ("qwen3", "qwen3-coder")),
    "gemma": About("Gemma 1", "GeGLU, a scaled embedding"),
    "gemma2": About("Gemma 2", "norms after blocks, soft caps, a window in every other layer", ("gemma2",)),
    "gemma3": About(
        "Gemma 3, text",
        "norms after blocks, normalised queries and keys, every sixth layer global with a rope of its own",
        ("gemma3",),
    ),
    "phi3": About(
        "Phi-3, Phi-3.5, Phi-4, Phi-4-mini", "fused tensors, rope on part of a head, LongRoPE", ("phi3", "phi3.5")
    ),
    "olmo2": About("OLMo 2", "norms only after blocks, one norm over all queries, one over all keys"),
    "granite": About("Granite 3, its dense models", "multipliers", ("granite3.3", "granite4")),
    "smollm3": About("SmolLM3", "every fourth layer without rope", ("smollm3",)),
    "gpt2": About("GPT-2, DistilGPT-2", "learned positions, layer norms, biases, an MLP without gate"),
    "lfm2": About("LFM2, its dense models", "short convolutions between gates, attention in some layers", ("lfm2",)),
    "qwen3_5": About(
        "Qwen 3.5, its dense models, text", "gated delta nets, and gated attention in every fourth layer", ("qwen3.5",)
    ),
    "qwen3_next": About(
        "Qwen3-Next 80B-A3B; GGUF: `qwen3next`",
        "Qwen 3.5's layers, and in each small experts beside one that all tokens share",
    ),
    "mixtral": About("Mixtral 8x7B and 8x22B; their GGUF files say `llama`", "two of eight experts for each MLP"),
    "qwen3_moe": About(
        "Qwen 3, its mixtures (30B-A3B); GGUF: `qwen3moe`", "normalised queries and keys, eight of 128 small experts"
    ),
    "gpt_oss": About(
        "gpt-oss 20B and 120B; GGUF: `gpt-oss`",
        "experts in MXFP4 with biases and a clamped gate, sinks, a window in every other layer",
        ("gpt-oss",),
    ),
}
"""By the architecture's name, in the page's order."""
