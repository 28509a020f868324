"""The models that are measured, and the token ids they are measured with."""

from __future__ import annotations

import os
from pathlib import Path

MODELS = ("smollm2-135m", "gemma3-270m")


def find(name: str) -> Path:
    """A model's file: from the folder ``PIE_EDGE_TEST_MODELS`` if it is set, as tests find it, else by name or path."""
    folder = os.environ.get("PIE_EDGE_TEST_MODELS")
    if folder and name in MODELS:
        return Path(folder) / f"{name}.gguf"
    from pie_edge.weights.hub import ensure

    return ensure(name)


def token_ids(path: Path, count: int) -> list[int]:
    """``count`` ids of plain English text with numbers, as the model's own tokenizer cuts it, after its BOS if it has one."""
    from pie_edge.tokenizer import Tokenizer
    from pie_edge.weights.checkpoint import open_checkpoint

    with open_checkpoint(path) as checkpoint:
        tokenizer = Tokenizer.from_gguf(checkpoint.metadata)
    text = " ".join(
        f"Item {i} costs {i * 37 % 101} coins and weighs {i * 53 % 89} grams." for i in range(1, count // 8 + 8)
    )
    return [*tokenizer.prefix(), *tokenizer.encode(text)][:count]
