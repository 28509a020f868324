"""Vectors of texts, pooled from the hidden states that the model's last norm gives.

    vector = await embedding.embed("The quick brown fox")

A vector has ``model.hidden_size()`` entries and the length 1, so that the dot product of two is their cosine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from inferlet import _check, chat, model
from inferlet.errors import ContextOverflow, Unsupported, UsageError
from inferlet.eta import ForwardPass, Pipeline, Tensor, WorkingSet, intrinsics, param, reduce_sum, reshape
from inferlet.eta.output import Output

KINDS = ("mean", "last", "cls")
"""Over all tokens; of the last token; of the first."""
_AT_ONCE = 64
"""Tokens of a pass whose hidden states are added up: one epilogue for all passes but the last, and few for those."""
_LEAST = 8


def tokens_of(text: str | Sequence[int]) -> list[int]:
    """What the model reads of a text: its tokens between what its tokenizer puts before and behind it. Tokens are taken as they
    are. Raises UsageError where there is nothing to read."""
    if isinstance(text, str):
        tokens = [*chat.prefix(), *model.encode(text), *model.facts().suffix]
    else:
        tokens = _check.tokens(text, "embedding.embed")
    if not tokens:
        raise UsageError("an empty text has no vector; give one token or more")
    return tokens


async def embed(text: str | Sequence[int], *, pooling: str | None = None) -> list[float]:
    """The vector of a text, or of tokens.

    ``pooling`` is how it comes of the hidden states, ``model.pooling()`` if it isn't given. Raises Unsupported where nothing says
    how, and ContextOverflow for what the model can't read at once.
    """
    kind = model.pooling() if pooling is None else pooling
    if kind is None:
        raise Unsupported(
            f"{model.name()} doesn't declare how to pool hidden states, so it has no vectors of texts; say how with the setting "
            f"pooling ({', '.join(KINDS)}), or take a model that declares it"
        )
    if kind not in KINDS:
        raise UsageError(f"pooling is {kind!r}; give one of {', '.join(KINDS)}")
    tokens, limit = tokens_of(text), model.context_size()
    if len(tokens) > limit:
        raise ContextOverflow(f"the text has {len(tokens)} tokens, and {model.name()} can read {limit}; shorten it")
    # A later token is nothing to an earlier one: of the first, the first is all there is to read.
    pooled = await (_mean(tokens, limit) if kind == "mean" else _last(tokens[:1] if kind == "cls" else tokens))
    return unit(pooled)


def unit(vector: Sequence[float]) -> list[float]:
    """The same direction with the length 1; zeros stay zeros."""
    length = math.sqrt(math.fsum(entry * entry for entry in vector))
    return [entry / length for entry in vector] if length else list(vector)


async def _last(tokens: Sequence[int]) -> list[float]:
    with WorkingSet(tokens=len(tokens)) as context, Pipeline() as pipe:
        state: list[float] = await _submit(pipe, context, 0, tokens, intrinsics.hidden)
    return state


async def _mean(tokens: Sequence[int], limit: int) -> list[float]:
    """A sum, whose length doesn't matter."""
    with WorkingSet(tokens=min(len(tokens) + _AT_ONCE, limit)) as context, Pipeline() as pipe:
        parts = [
            _submit(pipe, context, start, *_counted(tokens[start : start + _AT_ONCE], limit - start))
            for start in range(0, len(tokens), _AT_ONCE)
        ]
        total: list[float] = await parts[0]
        for part in parts[1:]:
            total = [sum(entries) for entries in zip(total, await part, strict=True)]
    return total


def _counted(part: Sequence[int], room: int) -> tuple[list[int], Callable[[], Tensor]]:
    """Tokens of a pass, and the sum of the hidden states of those that count: there are others behind them, which they don't
    see, so that most passes have as many and share an epilogue."""
    rows = min(_size(len(part)), room)
    spare = rows - len(part)
    weights = [1.0] * len(part) + [0.0] * spare
    return [*part, *[part[-1]] * spare], lambda: reduce_sum(
        intrinsics.hidden(rows) * reshape(param(weights), (rows, 1)), axis=0
    )


def _submit(
    pipe: Pipeline, context: WorkingSet, start: int, tokens: Sequence[int], epilogue: Callable[[], Tensor]
) -> Output:
    step = ForwardPass()
    step.embed(tokens)
    step.bind_state(context, context.geometry(start, start + len(tokens)))
    output: Output = step.epilogue(epilogue)
    pipe.submit(step)
    return output


def _size(count: int) -> int:
    size = _LEAST
    while size < count:
        size *= 2
    return size
