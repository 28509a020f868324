"""Whether what a server does beside its steps holds them up: a long body, a schema that is compiled, and 256 streams.

The server's own timeline says how long the device was idle between two steps of a run in which it always had work.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.serving.client import Client
from benchmarks.serving.load import PATH, answer_all, percentile
from benchmarks.serving.profiles import Profile
from benchmarks.serving.servers import ours

STEADY = Profile("steady", shared=0, own=(10, 20), tokens=(400, 400), first=600.0, next=600.0)
CROWD = Profile("crowd", shared=20, own=(10, 30), tokens=(8, 8), first=600.0, next=600.0)
STREAMS = 4
BODY_WORDS = 75_000
"""About 100,000 tokens."""
SCHEMA = {
    "type": "object",
    "properties": {f"field_{number}": {"type": "string", "pattern": "^[a-z]{1,40}$"} for number in range(60)},
    "required": [f"field_{number}" for number in range(60)],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Gaps:
    """Seconds that the device was idle from one step to the next."""

    name: str
    half: float
    most: float
    longest: float


def measure(model: Path) -> list[Gaps]:
    """First of streams alone, then of the same with each disturbance."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "profile.json"
        with ours(model, ("--backend", "cpu", "--profile", str(out))) as server:
            spans = asyncio.run(_run(Client(server.url), server.model))
        steps = _steps(out)
    return [_gaps(name, steps, began, ended) for name, began, ended in spans]


async def _run(client: Client, model: str) -> list[tuple[str, float, float]]:
    """The parts, with when each began and ended."""
    first, crowd = (list(itertools.islice(CROWD.requests(model, seed), 256)) for seed in (1, 3))
    await answer_all(client, first, len(first))  # steps of new sizes are compiled once, whoever comes
    parts: dict[str, Callable[[], Awaitable[Any]]] = {
        "four streams alone": lambda: asyncio.sleep(3.0),
        "a body of 100,000 tokens": lambda: client.stream(PATH, _long(model)),
        "a schema is compiled": lambda: client.stream(PATH, _constrained(model)),
        "256 more streams": lambda: answer_all(client, crowd, len(crowd)),
    }
    found = []
    for name, disturb in parts.items():
        steady = [
            asyncio.create_task(client.stream(PATH, body))
            for body in itertools.islice(STEADY.requests(model, 2), STREAMS)
        ]
        await asyncio.sleep(1.0)
        began = time.perf_counter()
        await disturb()
        found.append((name, began, time.perf_counter()))
        await asyncio.gather(*steady)
    return found


def _long(model: str) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": "word " * BODY_WORDS}], "max_tokens": 1}


def _constrained(model: str) -> dict[str, Any]:
    wanted = {"type": "json_schema", "json_schema": {"name": "wide", "strict": True, "schema": SCHEMA}}
    return {
        "model": model,
        "messages": [{"role": "user", "content": "Go on."}],
        "max_tokens": 8,
        "response_format": wanted,
    }


def _steps(path: Path) -> list[tuple[float, float]]:
    """When each step was on the device, in seconds."""
    events: Sequence[Mapping[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    steps = [event for event in events if event.get("cat") == "device"]
    return sorted((event["ts"] / 1e6, (event["ts"] + event["dur"]) / 1e6) for event in steps)


def _gaps(name: str, steps: Sequence[tuple[float, float]], began: float, ended: float) -> Gaps:
    inside = [step for step in steps if began <= step[0] and step[1] <= ended]
    gaps = [max(after[0] - before[1], 0.0) for before, after in itertools.pairwise(inside)]
    return Gaps(name, percentile(gaps, 0.5), percentile(gaps, 0.99), max(gaps, default=float("nan")))
