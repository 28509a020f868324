"""What the model thinks of what could come next, without anything being appended."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence
from typing import Any

from inferlet import _check, model
from inferlet._recipe import Recipe, Slots, capacity, padded
from inferlet._transcript import Transcript, check_tokens
from inferlet.errors import ContextOverflow, UsageError
from inferlet.eta import intrinsics, ops
from inferlet.generation import Logprob

Candidate = str | int | Sequence[int]
_ROWS = 32
"""Read out of one pass. Fewer are powers of two, so that a text of any length is of these few epilogues."""


async def score(transcript: Transcript, candidates: Sequence[Candidate]) -> list[float]:
    """Log probabilities: log-softmax of the raw logits, summed over a candidate's tokens.

    All single tokens are read from one pass; longer candidates are forwarded on forks, side by side.
    """
    sequences = [_tokens(candidate) for candidate in candidates]
    found = [0.0] * len(sequences)
    singles = [place for place, tokens in enumerate(sequences) if len(tokens) == 1]
    longer = [place for place, tokens in enumerate(sequences) if len(tokens) > 1]
    # The forks before the pass: what they have in common is forwarded first, and for it too.
    forks = [transcript.fork(None) for _ in longer]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_sum(fork, sequences[place])) for fork, place in zip(forks, longer, strict=True)]
            if singles:
                ids = [sequences[place][0] for place in singles]
                read = group.create_task(_gather(transcript, ids, raw=False))
    except BaseExceptionGroup as group_error:
        raise group_error.exceptions[0] from None
    finally:
        for fork in forks:
            fork.close()
    for place, task in zip(longer, tasks, strict=True):
        found[place] = task.result()
    if singles:
        for place, value in zip(singles, read.result(), strict=True):
            found[place] = value
    return found


async def along(transcript: Transcript, tokens: list[int], alternatives: int) -> list[Logprob]:
    """Appends the tokens, and gives the log probability of each, from the row of the one before it."""
    count = min(_check.count(alternatives, "alternatives"), model.vocabulary_size())
    found = []
    if tokens and not transcript.tokens:
        found.append(Logprob(tokens[0], None))
        transcript.fill(tokens[:1])
    most = _ROWS
    while len(found) < len(tokens):
        rows = min(most, 1 << (len(tokens) - len(found)).bit_length() - 1)
        part = tokens[len(found) : len(found) + rows]
        before = len(transcript.tokens)
        transcript.fill(part[:-1])
        try:
            made = await transcript.forward(_all_along(rows, count).with_values({"ids": part}))
        except ContextOverflow:
            # Of a large vocabulary a pass may read out fewer rows.
            transcript.truncate(before)
            if most == 1:
                raise
            most //= 2
            continue
        transcript.fill(part[-1:])
        found += _logprobs(part, *made)
    return found


def _logprobs(tokens: list[int], own: list[list[float]], top: Any = None, ids: Any = None) -> list[Logprob]:
    likeliest = (
        [()] * len(tokens) if top is None else [tuple(zip(*row, strict=True)) for row in zip(ids, top, strict=True)]
    )
    return [Logprob(token, row[0], best) for token, row, best in zip(tokens, own, likeliest, strict=True)]


async def logits(transcript: Transcript, tokens: Sequence[int]) -> list[float]:
    return await _gather(transcript, check_tokens(tokens), raw=True) if tokens else []


async def entropy(transcript: Transcript) -> float:
    return float(await transcript.forward(_entropy().with_values({})))


async def likeliest(transcript: Transcript, count: int) -> list[tuple[int, float]]:
    if type(count) is not int or count < 1:
        raise UsageError(f"the {count!r} likeliest tokens were asked for; ask for 1 or more")
    values, ids = await transcript.forward(_top(min(count, model.vocabulary_size())).with_values({}))
    return list(zip(ids, values, strict=True))


async def _gather(transcript: Transcript, ids: list[int], *, raw: bool) -> list[float]:
    length = capacity(len(ids))
    found: list[float] = await transcript.forward(_at(length, raw).with_values({"ids": padded(ids, length)}))
    return found[: len(ids)]


async def _sum(transcript: Transcript, tokens: list[int]) -> float:
    """Each token's log probability is in the row of the one before it."""
    epilogue = _along(len(tokens)).with_values({"ids": tokens})
    rows: list[Any] = await transcript.forward(epilogue, extra=tokens[:-1])
    return float(sum(row[0] for row in rows))


@functools.cache
def _entropy() -> Recipe:
    return Recipe(lambda slots: ops.entropy(intrinsics.logits()))


@functools.cache
def _top(count: int) -> Recipe:
    return Recipe(lambda slots: ops.top_k(ops.log_softmax(intrinsics.logits()), count))


@functools.cache
def _at(length: int, raw: bool) -> Recipe:
    def build(slots: Slots) -> Any:
        x = intrinsics.logits()
        return ops.take_along(x if raw else ops.log_softmax(x), slots.ids("ids", length))

    return Recipe(build)


@functools.cache
def _along(rows: int) -> Recipe:
    def build(slots: Slots) -> Any:
        logprobs = ops.log_softmax(intrinsics.logits(rows))
        return ops.take_along(logprobs, ops.reshape(slots.ids("ids", rows), [rows, 1]))

    return Recipe(build)


@functools.cache
def _all_along(rows: int, count: int) -> Recipe:
    def build(slots: Slots) -> Any:
        logprobs = ops.log_softmax(intrinsics.logits(rows))
        own = ops.take_along(logprobs, ops.reshape(slots.ids("ids", rows), [rows, 1]))
        return (own, *ops.top_k(logprobs, count)) if count else (own,)

    return Recipe(build)


def _tokens(candidate: Candidate) -> list[int]:
    if isinstance(candidate, str):
        found = model.encode(candidate)
    else:
        found = check_tokens([candidate] if isinstance(candidate, int) else candidate)
    if not found:
        raise UsageError(f"the candidate {candidate!r} has no tokens; give a text, a token or tokens")
    return found
