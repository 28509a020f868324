"""What the server runs for embeddings: texts go in, their vectors come out as messages.

``inputs`` are texts or lists of tokens, ``dimensions`` is how many entries of a vector are kept; what the messages are is said in
``pie_edge/server/events.py``.
"""

import asyncio
import base64
import json
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

from inferlet import embedding, errors, model, session

_AT_ONCE = 1024  # tokens, that share the model's steps; a longer text goes by itself


async def main(input: dict[str, Any]) -> None:
    try:
        limit = model.context_size()
        texts = []
        for number, text in enumerate(input["inputs"]):
            try:
                texts.append(embedding.tokens_of(text))
            except errors.ResourceError as error:  # more than the tokenizer takes
                return _refuse("context-overflow", f"text {number} is too long: {error}", part=number)
            if len(texts[-1]) > limit:
                count = len(texts[-1])
                return _refuse("context-overflow", _too_long(number, count), count, limit, number)
        for group in _groups(texts):
            vectors = await asyncio.gather(*map(embedding.embed, group))
            _send(*(["v", _packed(vector, input.get("dimensions"))] for vector in vectors))
        _send(["n", sum(map(len, texts))])
    except errors.PieError as error:
        _refuse(error.code, str(error))
        raise


def _groups(texts: Sequence[list[int]]) -> Iterator[list[list[int]]]:
    """Neighbours that are few tokens together."""
    group: list[list[int]] = []
    for tokens in texts:
        if group and sum(map(len, group)) + len(tokens) > _AT_ONCE:
            yield group
            group = []
        group.append(tokens)
    yield group


def _packed(vector: list[float], dimensions: int | None) -> str:
    """Little-endian floats in base64. What is left of a shortened vector gets the length 1 again."""
    if dimensions is not None:
        vector = embedding.unit(vector[:dimensions])
    return base64.b64encode(array("f", vector).tobytes()).decode()


def _too_long(number: int, tokens: int) -> str:
    return f"text {number} has {tokens} tokens, and {model.name()} can read {model.context_size()}; shorten it"


def _refuse(
    code: str, message: str, tokens: int | None = None, limit: int | None = None, part: int | None = None
) -> None:
    _send(["x", code, message, tokens, limit, part])


def _send(*events: list[Any]) -> None:
    session.send(json.dumps(events, ensure_ascii=False))
