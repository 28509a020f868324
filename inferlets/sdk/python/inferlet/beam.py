"""Beam search: the likeliest continuations as a whole, on forks that share their pages."""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from inferlet import chat, model, probes
from inferlet._transcript import Transcript
from inferlet.context import Context
from inferlet.errors import UsageError


@dataclass(frozen=True, slots=True)
class Beam:
    """A continuation. ``tokens`` are without a stop token, whose probability ``logprob`` includes; ``score`` is
    logprob / length ** length_penalty, the length counting the stop token. ``context`` goes on from there."""

    tokens: list[int]
    text: str
    logprob: float
    score: float
    finish_reason: Literal["stop", "length"]
    context: Context = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Live:
    """A continuation that may grow."""

    transcript: Transcript
    tokens: tuple[int, ...]
    logprob: float


class _Step(NamedTuple):
    """One more token for a live continuation, and the log probability of the whole."""

    logprob: float
    parent: int
    token: int


async def beam_search(
    context: Context,
    *,
    width: int = 4,
    max_tokens: int,
    length_penalty: float = 1.0,
    stop_tokens: Iterable[int] | None = None,
) -> list[Beam]:
    """The best ``width`` continuations found, best first; ``context`` stays as it is.

    At every step the ``width`` likeliest continuations live on, and those among the likelier ones that end with a stop
    token are done. It ends when no live one could still become one of the best. A ``length_penalty`` above 0 favours
    long continuations, 0 compares plain log probabilities.
    """
    if width < 1 or max_tokens < 1:
        raise UsageError(f"width is {width} and max_tokens {max_tokens}; both must be 1 or more")
    stops = frozenset(chat.stop_tokens() if stop_tokens is None else stop_tokens)
    search = _Search(width, max_tokens, length_penalty, stops)
    live = [_Live(context.transcript.fork(None), (), 0.0)]
    for length in range(1, max_tokens + 1):
        found = await _likeliest(live, width + len(stops))
        live = search.advance(live, found, length)
        if not live or search.decided(live, length):
            break
    return search.best(live)


async def _likeliest(live: list[_Live], count: int) -> list[list[tuple[int, float]]]:
    """For each live continuation its likeliest next tokens, from passes side by side. ``width`` that go on are among them."""
    return await asyncio.gather(*(probes.likeliest(one.transcript, count) for one in live))


class _Search:
    """What is done so far: at most ``width`` continuations, the best there were."""

    def __init__(self, width: int, max_tokens: int, penalty: float, stops: frozenset[int]) -> None:
        self._width = width
        self._max_tokens = max_tokens
        self._penalty = penalty
        self._stops = stops
        self._done: list[tuple[float, int, Beam]] = []
        self._count = 0

    def advance(self, live: list[_Live], found: list[list[tuple[int, float]]], length: int) -> list[_Live]:
        """The continuations that live on. What ends by the way is done."""
        steps = [
            _Step(live[parent].logprob + logprob, parent, token)
            for parent, tokens in enumerate(found)
            for token, logprob in tokens
        ]
        steps.sort(key=lambda step: (-step.logprob, step.parent, step.token))
        kept: list[_Step] = []
        for step in steps:
            if len(kept) == self._width:
                break
            if step.token in self._stops:
                self._finish(live[step.parent], step.logprob, length, "stop")
            else:
                kept.append(step)
        return self._grow(live, kept)

    def decided(self, live: list[_Live], length: int) -> bool:
        """Whether no live continuation can become one of the best: log probabilities only fall."""
        if len(self._done) < self._width:
            return False
        longest = self._max_tokens if self._penalty > 0 else length
        return _score(max(one.logprob for one in live), longest, self._penalty) <= self._done[0][0]

    def best(self, live: list[_Live]) -> list[Beam]:
        """Best first, those that are still alive at the end among them."""
        for one in live:
            if len(one.tokens) == self._max_tokens:
                self._finish(one, one.logprob, self._max_tokens, "length")
            one.transcript.close()
        return [beam for _, _, beam in sorted(self._done, key=lambda entry: entry[:2], reverse=True)]

    def _finish(self, one: _Live, logprob: float, length: int, reason: Literal["stop", "length"]) -> None:
        score = _score(logprob, length, self._penalty)
        if len(self._done) == self._width and score <= self._done[0][0]:
            return
        context = Context.of(one.transcript.fork(None))
        tokens = list(one.tokens)
        beam = Beam(tokens, model.decode(tokens, continued=True), logprob, score, reason, context)
        # Of equal scores, the one that was done first is the better.
        self._count -= 1
        heapq.heappush(self._done, (score, self._count, beam))
        if len(self._done) > self._width:
            heapq.heappop(self._done)[2].context.close()

    def _grow(self, live: list[_Live], kept: list[_Step]) -> list[_Live]:
        """The last child of a continuation takes its pages over, the others fork them; without any it is dropped."""
        left = [sum(step.parent == parent for step in kept) for parent in range(len(live))]
        for parent, count in enumerate(left):
            if count == 0:
                live[parent].transcript.close()
        grown = []
        for step in kept:
            one = live[step.parent]
            left[step.parent] -= 1
            transcript = one.transcript.fork(None) if left[step.parent] else one.transcript
            transcript.append([step.token])
            grown.append(_Live(transcript, (*one.tokens, step.token), step.logprob))
        return grown


def _score(logprob: float, length: int, penalty: float) -> float:
    return logprob / math.pow(length, penalty)
