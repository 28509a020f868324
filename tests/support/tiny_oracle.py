"""What the tiny model says, by whole passes of the reference: no cache, no batches, no SDK."""

from __future__ import annotations

import functools

from pie_edge.model import llama
from tests.support.oracle_run import Floats, Loaded, log_probabilities
from tests.support.tiny import SPEC, adapted_weights, random_weights

VOCABULARY = SPEC.vocabulary


@functools.cache
def _loaded(adapter: int | None = None) -> Loaded:
    return Loaded(SPEC, llama, random_weights() if adapter is None else adapted_weights(adapter))


@functools.cache
def logprobs_after(tokens: tuple[int, ...]) -> list[float]:
    """Log probabilities of the next token."""
    return [float(x) for x in logprobs_of_all(tokens)[-1]]


def logprobs_of_all(tokens: tuple[int, ...]) -> Floats:
    return log_probabilities(_loaded(), list(tokens))


def best_after(tokens: list[int]) -> int:
    row = logprobs_after(tuple(tokens))
    return row.index(max(row))


def adapted(adapter: int, tokens: list[int], count: int) -> list[int]:
    """What is likeliest, token after token, through an adapter of the tiny model."""
    made: list[int] = []
    while len(made) < count:
        made.append(int(log_probabilities(_loaded(adapter), tokens + made)[-1].argmax()))
    return made


def greedy(tokens: list[int], count: int, stops: frozenset[int] = frozenset()) -> list[int]:
    made: list[int] = []
    while len(made) < count:
        token = best_after(tokens + made)
        if token in stops:
            break
        made.append(token)
    return made
