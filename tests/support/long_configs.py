"""Tiny models that are asked for the last logits of a 4,096-token prompt: windows far behind them, and scaled positions.

To add a family, put its configuration here and run ``scripts/family-oracle --long NAME``.
"""

from __future__ import annotations

from tests.support.family_configs import CONFIGS, Config

TOKENS = 4096
_LONG = {"max_position_embeddings": TOKENS}
_WINDOW = {"sliding_window": 512}
_SMALL = {"num_hidden_layers": 2}

LONG: dict[str, Config] = {
    "mistral": CONFIGS["mistral"] | _LONG | _WINDOW | _SMALL,
    "gemma2": CONFIGS["gemma2"] | _LONG | _WINDOW | _SMALL,
    "gemma3": CONFIGS["gemma3"] | _LONG | _WINDOW | {"num_hidden_layers": 6},
    "phi3": CONFIGS["phi3"] | _LONG | _WINDOW | {"original_max_position_embeddings": TOKENS} | _SMALL,
    "llama-yarn": CONFIGS["llama-yarn"]
    | _LONG
    | _SMALL
    | {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}},
    "lfm2": CONFIGS["lfm2"] | _LONG,
    "qwen3.5": CONFIGS["qwen3.5"] | _LONG,
    "phi3-long": CONFIGS["phi3-long"] | _LONG | _SMALL | {"original_max_position_embeddings": 1024},
}
"""By the name of their fixture: windows that end far before the prompt's start, positions beyond those trained, state of
all that came before."""

CONTEXT = {"phi3-long": TOKENS}
"""What is asked of those whose context is a choice."""


def prompt(config: Config) -> list[int]:
    """Tokens that never repeat as a whole."""
    return [(7 * i * i + 3 * i + 5 + i // 96 * 31) % config["vocab_size"] for i in range(TOKENS)]
