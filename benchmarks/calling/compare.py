"""One agent, or several at once, by the number of calls: programs beside the model against clients that send requests."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.calling.client import Inferlets, RequestingAgents, Turns
from benchmarks.calling.script import SHAPES, Scripts, Sizes
from benchmarks.harness import in_turns

INFERLET, REQUESTS, PEER = "inferlet", "requests", "llama.cpp"


class DisagreementError(Exception):
    """Two sides that have to write the same tokens didn't."""


@dataclass(frozen=True)
class Point:
    """Seconds by side, one for each round, of ``together`` agents with ``calls`` calls each."""

    shape: str
    calls: int
    together: int
    seconds: Mapping[str, list[float]]


@dataclass
class Comparison:
    """``sides`` are run by ``runner``; ``before`` is called before each measurement."""

    sides: Mapping[str, Inferlets | RequestingAgents]
    scripts: Scripts
    sizes: Sizes
    runner: asyncio.Runner
    before: Callable[[], None] = lambda: None
    spoken: dict[tuple[str, int, int], dict[str, Turns]] = field(default_factory=dict)
    """What each side wrote, by shape, calls and session."""
    _sessions: itertools.count[int] = field(default_factory=lambda: itertools.count(1000))

    def warm_up(self) -> None:
        """Buckets are recorded, programs loaded, connections opened."""
        for shape in SHAPES:
            self.point(shape, 2, self.sizes.together, 1)

    def point(self, shape: str, calls: int, together: int, rounds: int) -> Point:
        # All sides have the same sessions, each in a process with a cache of its own.
        sessions = [[next(self._sessions) for _ in range(together)] for _ in range(rounds)]

        def measure(name: str) -> Callable[[], float]:
            left = iter(sessions)
            return lambda: self.runner.run(self._measure(name, shape, calls, next(left)))

        seconds = in_turns({name: measure(name) for name in self.sides}, rounds, self.before)
        return Point(shape, calls, together, seconds)

    async def _measure(self, name: str, shape: str, calls: int, sessions: Sequence[int]) -> float:
        tasks = [self.scripts.task(shape, session, calls) for session in sessions]
        side, start = self.sides[name], time.perf_counter()
        spoken = await asyncio.gather(*(side.run(shape, task) for task in tasks))
        seconds = time.perf_counter() - start
        for session, turns in zip(sessions, spoken, strict=True):
            self.spoken.setdefault((shape, calls, session), {})[name] = turns
        return seconds

    def check(self, exact: bool) -> str:
        """How many wrote the same tokens. Raises DisagreementError where numbers of tokens differ or, if ``exact``, ours do."""
        agents = len(self.spoken)
        alike = {name: 0 for name in self.sides if name != INFERLET}
        for key, sides in self.spoken.items():
            ours = sides[INFERLET]
            for name in alike:
                if [len(turn) for turn in sides[name]] != [len(turn) for turn in ours]:
                    raise DisagreementError(f"{key}: the turns of {name} have other lengths than the inferlet's")
                alike[name] += sides[name] == ours
        other = agents - alike.get(REQUESTS, agents)
        if exact and other:
            raise DisagreementError(f"{other} of {agents} agents wrote other tokens through requests")
        return ", ".join(f"{name} {count} of {agents}" for name, count in alike.items())
