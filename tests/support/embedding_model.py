"""A tiny Qwen 3 that embeds, in the files that Qwen's own embedding models come in: a decoder by itself, a tokenizer that ends
texts, and what sentence-transformers puts beside them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from tokenizers import AddedToken, models, pre_tokenizers, processors

from tests.support.family_checkpoints import make_weights, write_snapshot
from tests.support.family_configs import CONFIGS, Config

NAME = "embedder"
FIXTURE = Path(__file__).resolve().parents[1] / "data" / "embeddings.json"
END = "<|endoftext|>"
CONFIG: Config = CONFIGS["qwen3"] | {"vocab_size": 272}
WIDTH: int = CONFIG["hidden_size"]
TEXTS = [
    "a",
    "Apples fall from trees.",
    # More than one pass of those that are added up, and not a whole number of them.
    "The moon pulls at the sea, and the sea at the moon; so the days grow longer, by two thousandths of a second in a century.",
    "",
    "Ünïcödé 日本 🎌",
]
"""An empty one has the end of text alone, which servers don't take."""


def tokenizer() -> tokenizers.Tokenizer:
    """Bytes, and the end of a text, which it puts behind one."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    library = tokenizers.Tokenizer(models.BPE({letter: number for number, letter in enumerate(alphabet)}, []))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    library.add_special_tokens([AddedToken(END, special=True, normalized=False)])
    ends = [(END, library.token_to_id(END))]
    library.post_processor = processors.TemplateProcessing(single=f"$A {END}", special_tokens=ends)
    return library


def write(folder: Path, pooling: str | None = "last", more: tuple[str, ...] = ("Normalize",)) -> Path:
    """``pooling`` is the mode that is on; None writes nothing of it. ``more`` are the modules behind it."""
    weights = {name.removeprefix("model."): weight for name, weight in make_weights(CONFIG).items()}
    write_snapshot(folder, CONFIG, weights)
    tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": END}), encoding="utf-8")
    if pooling is not None:
        steps = ["Transformer", "Pooling", *more]
        modules = [{"idx": i, "path": "", "type": f"sentence_transformers.models.{s}"} for i, s in enumerate(steps)]
        (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
        modes = {"last": "lasttoken", "cls": "cls_token"}
        stated = {"word_embedding_dimension": WIDTH, f"pooling_mode_{modes.get(pooling, f'{pooling}_tokens')}": True}
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(stated), encoding="utf-8")
    return folder


def expected(pooling: str) -> list[Any]:
    """The vector of each text, by ``scripts/family-oracle --embeddings``."""
    held = json.loads(FIXTURE.read_text(encoding="utf-8"))
    return [np.asarray(vector, np.float32) for vector in held[pooling]]
