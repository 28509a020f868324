"""Text for a checkpoint: the tokenizer that it carries and, where it has a chat template, its turns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pie_edge.errors import TemplateError, TokenizerError
from pie_edge.tokenizer import Tokenizer
from pie_edge.tokenizer.template import ChatTemplate
from pie_edge.tokenizer.turns import Turns
from pie_edge.weights.checkpoint import Checkpoint

_WRONG_DATA = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What code that takes a file's values apart raises when they aren't what they should be."""


def open_text(checkpoint: Checkpoint, vocabulary: int = 0) -> tuple[Tokenizer, Turns | None]:
    """``vocabulary`` is how many logits the model has, where they may be more than the file has tokens. Raises TokenizerError, or
    BadCheckpoint for a file beside the weights, naming the checkpoint's file."""
    checkpoint.check_tokenizer()
    try:
        tokenizer = _tokenizer(checkpoint).padded(vocabulary)
        return tokenizer, _turns(checkpoint, tokenizer)
    except TokenizerError as error:
        raise TokenizerError(f"{checkpoint.path}: {error}") from error
    except _WRONG_DATA as error:
        raise TokenizerError(
            f"{checkpoint.path}: its tokenizer is damaged ({type(error).__name__}: {error}); import the model again"
        ) from error


def _tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    files = checkpoint.metadata
    if checkpoint.container == "gguf":
        return Tokenizer.from_gguf(files)
    config = dict(files.get("tokenizer_config.json", {}))
    # As transformers derives the one from the other.
    stated = (files.get(name, {}).get("eos_token_id") for name in ("generation_config.json", "config.json"))
    stops = next((stop for stop in stated if stop is not None), None)
    return Tokenizer.from_json(files["tokenizer.json"], config if stops is None else config | {"eos_token_id": stops})


def _turns(checkpoint: Checkpoint, tokenizer: Tokenizer) -> Turns | None:
    try:
        return Turns(tokenizer, _template(checkpoint.container, checkpoint.metadata, tokenizer))
    except TemplateError:
        return None


def _template(container: str, files: Mapping[str, Any], tokenizer: Tokenizer) -> ChatTemplate:
    if container == "gguf":
        return ChatTemplate.from_gguf(files, tokenizer)
    own = files.get("chat_template.jinja")
    texts = {"default": own.read_text(encoding="utf-8")} if own is not None else None
    return ChatTemplate.from_config(files.get("tokenizer_config.json", {}), tokenizer, texts)
