"""What an epilogue sees of its pass.

A *row* is a token that the pass reads out: its last token, unless the pass says otherwise. Every intrinsic gives
all rows, ``[rows, …]``, or the last ``rows`` of them; where the pass reads out one row and ``rows`` isn't given, there is
no axis for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from inferlet.eta.tensor import Tensor, apply

VOCAB = "vocab"
"""The model's vocabulary, wherever a length is asked for: ``gumbel((VOCAB,))``, ``iota(VOCAB)``."""


def logits(rows: int | None = None) -> Tensor:
    """f32 ``[vocab]`` or ``[rows, vocab]``."""
    return apply("logits", rows=rows)


def hidden(rows: int | None = None) -> Tensor:
    """f32 ``[hidden]`` or ``[rows, hidden]``: what the model's last norm gave, of ``model.hidden_size()`` entries. An epilogue
    that reads no logits beside it has none computed."""
    return apply("hidden", rows=rows)


def position(rows: int | None = None) -> Tensor:
    """u32, where the row's token stands in its context: a scalar or ``[rows]``."""
    return apply("position", rows=rows)


def uniform(shape: Sequence[int | str] = (), rows: int | None = None) -> Tensor:
    """f32 numbers in (0, 1): ``shape`` or ``[rows, *shape]``. They depend on the seed, the row's position and which draw of
    the epilogue it is, and on nothing else: each row draws as it would in a pass of its own."""
    return apply("uniform", shape=list(shape), rows=rows)


def gumbel(shape: Sequence[int | str] = (VOCAB,), rows: int | None = None) -> Tensor:
    """f32 standard Gumbel noise: ``reduce_argmax(logits() + gumbel())`` draws from softmax(logits())."""
    return apply("gumbel", shape=list(shape), rows=rows)


def __getattr__(name: str) -> NoReturn:
    known = "logits, hidden, position, uniform, gumbel"
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(f"a pass of this model has no {name!r} for epilogues; it has {known}")


__all__: list[Any] = ["VOCAB", "gumbel", "hidden", "logits", "position", "uniform"]
