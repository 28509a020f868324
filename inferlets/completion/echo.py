"""The prompt as a part of the answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from inferlet import Context, model, tokenizer
from parts import written
from prompts import Prompt

_AT_ONCE = 256  # tokens in an event


async def fill(
    context: Context, prompt: Prompt, alternatives: int | None
) -> AsyncIterator[tuple[str, list[Any] | None]]:
    """Its text; in pieces, with the log probabilities of their tokens, if those were asked for: then the context gets filled."""
    tokens = prompt.tokens
    if alternatives is None:
        yield prompt.text if isinstance(prompt.text, str) else model.decode(tokens), None
        return
    decoder = tokenizer.Decoder()
    for first in range(0, len(tokens), _AT_ONCE):
        part = tokens[first : first + _AT_ONCE]
        scored = await context.fill_scored(part, alternatives)
        text = decoder.push(part) + (decoder.flush() if first + _AT_ONCE >= len(tokens) else "")
        yield text, [written(one) for one in scored]
