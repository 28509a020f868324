"""Requests sent as they arrive, whatever becomes of the earlier ones, and what the answers' times amount to."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.serving.client import Answer, Client
from benchmarks.serving.profiles import Profile, arrivals

PATH = "/v1/chat/completions"
CONTENT = 0.9
"""The share of requests that has to be served as its profile wants for a rate to count as met."""
Try = Callable[[float], Awaitable["Figures"]]


@dataclass(frozen=True)
class Figures:
    """Of the answers to so many requests: seconds, ``…_first`` to the first token and ``…_next`` between tokens, as 50th and 99th
    percentiles. ``content`` is the share that was within the profile's limits, refused and failed ones counted against it."""

    requests: int
    errors: int
    half_first: float
    most_first: float
    half_next: float
    most_next: float
    tokens_per_second: float
    requests_per_second: float
    content: float
    late: float
    """How late the generator itself was at worst: more than milliseconds is a generator that couldn't keep up."""

    @classmethod
    def of(cls, answers: Sequence[Answer], profile: Profile, seconds: float) -> Figures:
        """``seconds`` is how long it took to answer all of them."""
        good = [answer for answer in answers if not answer.error and answer.tokens]
        firsts = [answer.tokens[0] for answer in good]
        gaps = [gap for answer in good for gap in answer.gaps]
        served = sum(_is_content(answer, profile) for answer in good)
        return cls(
            requests=len(answers),
            errors=len(answers) - len(good),
            half_first=percentile(firsts, 0.5),
            most_first=percentile(firsts, 0.99),
            half_next=percentile(gaps, 0.5),
            most_next=percentile(gaps, 0.99),
            tokens_per_second=sum(answer.count for answer in good) / seconds,
            requests_per_second=len(good) / seconds,
            content=served / max(len(answers), 1),
            late=max((answer.sent for answer in answers), default=0.0),
        )


def _is_content(answer: Answer, profile: Profile) -> bool:
    gaps = answer.gaps
    return answer.tokens[0] <= profile.first and (not gaps or sum(gaps) / len(gaps) <= profile.next)


def percentile(values: Iterable[float], share: float) -> float:
    """The value that this share of them is at most; nan of none."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else float("nan")


async def offer(client: Client, model: str, profile: Profile, rate: float, seconds: float, seed: int) -> Figures:
    """Requests of a profile, ``rate`` a second in a Poisson process for so long."""
    requests = profile.requests(model, seed)
    began = time.perf_counter()
    tasks = []
    for moment, body in zip(arrivals(rate, seconds, seed), requests, strict=False):
        await asyncio.sleep(max(began + moment - time.perf_counter(), 0.0))
        tasks.append(asyncio.create_task(client.stream(PATH, body, began + moment)))
    answers = await asyncio.gather(*tasks)
    return Figures.of(answers, profile, time.perf_counter() - began)


async def keep_busy(client: Client, model: str, profile: Profile, streams: int, count: int, seed: int) -> Figures:
    """``count`` requests, ``streams`` of them at any time: what the server can do at most."""
    bodies = itertools.islice(profile.requests(model, seed), count)
    began = time.perf_counter()
    answers = await answer_all(client, bodies, streams)
    return Figures.of(answers, profile, time.perf_counter() - began)


async def answer_all(client: Client, bodies: Iterable[dict[str, Any]], streams: int, path: str = PATH) -> list[Answer]:
    """The answers, in the order in which they ended; ``streams`` requests are under way at any time."""
    waiting, answers = iter(bodies), []

    async def work() -> None:
        for body in waiting:
            answers.append(await client.stream(path, body))

    await asyncio.gather(*(work() for _ in range(streams)))
    return answers


async def highest_rate(attempt: Try, lowest: float, halvings: int) -> tuple[float, Figures | None]:
    """Requests a second that are served as wanted, to a part in 2^``halvings``: doubled until they aren't, then halved. 0 and
    None if not even the ``lowest`` is."""
    held, figures, rate = 0.0, None, lowest
    while (found := await attempt(rate)).content >= CONTENT:
        held, figures, rate = rate, found, 2 * rate
    for _ in range(halvings if held else 0):
        middle = (held + rate) / 2
        found = await attempt(middle)
        if found.content >= CONTENT:
            held, figures = middle, found
        else:
            rate = middle
    return held, figures
