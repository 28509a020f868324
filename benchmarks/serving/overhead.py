"""What HTTP and the inferlet take: the same tokens through the engine's calls, through inferlets, and through the server; and
where the server's time goes, by its own figures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import models
from benchmarks.processes import Process, worker
from benchmarks.serving.client import Client
from benchmarks.serving.load import answer_all
from benchmarks.serving.servers import ours
from pie_edge.cli.figures import Between, read

STREAMS, PROMPT, TOKENS = 16, 64, 64
COMPLETIONS = "/v1/completions"


@dataclass(frozen=True)
class Overhead:
    """Tokens a second of 16 streams, prompts included, by rounds; ``shares`` of the wall time are the server's."""

    engine: Sequence[float]
    inferlets: Sequence[float]
    server: Sequence[float]
    shares: dict[str, float]


def measure(model: Path, rounds: int, threads: int) -> Overhead:
    prompts = _prompts(model)
    found: dict[str, list[float]] = {"engine": [], "inferlet": []}
    for side, values in found.items():
        with Process(side, worker(side, model, "cpu", threads, "wall")) as process:
            for number in range(rounds + 1):  # The first one compiles.
                values.append(process.measure("streams", prompts=_fresh(prompts, number), count=TOKENS))
    with ours(model, ("--backend", "cpu")) as server:
        values, shares = asyncio.run(_server(Client(server.url), server.model, prompts, rounds))
    return Overhead(found["engine"][1:], found["inferlet"][1:], values, shares)


async def _server(
    client: Client, model: str, prompts: Sequence[Sequence[int]], rounds: int
) -> tuple[list[float], dict[str, float]]:
    bodies: list[dict[str, Any]] = [
        {"model": model, "prompt": list(prompt), "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
        for prompt in prompts
    ]
    await answer_all(client, bodies, STREAMS, COMPLETIONS)
    before = read(await client.get("/metrics"), time.monotonic())
    values = []
    for number in range(rounds):
        fresh = [{**body, "prompt": prompt} for body, prompt in zip(bodies, _fresh(prompts, number + 1), strict=True)]
        began = time.perf_counter()
        answers = await answer_all(client, fresh, STREAMS, COMPLETIONS)
        seconds = time.perf_counter() - began
        if failed := [answer.error for answer in answers if answer.error]:
            raise ChildProcessError(f"the server refused {len(failed)} requests: {failed[0]}")
        values.append(sum(answer.count for answer in answers) / seconds)
    figures = Between(before, read(await client.get("/metrics"), time.monotonic()))
    names = ("device_busy_seconds", "device_starved_seconds", "control_seconds", "guest_seconds")
    return values, {name.removesuffix("_seconds"): figures.rate(name) for name in names}


def _prompts(model: Path) -> list[list[int]]:
    """No two begin alike."""
    ids = models.token_ids(model, PROMPT + STREAMS)
    return [[ids[-1 - number], *ids[number : number + PROMPT - 1]] for number in range(STREAMS)]


def _fresh(prompts: Sequence[Sequence[int]], number: int) -> list[list[int]]:
    """Other tokens for each round: what is cached needn't be forwarded."""
    return [[token + number for token in prompt] for prompt in prompts]
