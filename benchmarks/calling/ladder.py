"""The ladder of function calls: agents read documents of APIs and call them, each rung with one more of a program's means.

Whether documents stand before an agent's own words decides what a prefix cache finds of them: before, all
agents begin alike. Clients have them there.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from benchmarks.calling.client import Inferlets, RequestingAgents, Turns
from benchmarks.calling.compare import INFERLET, PEER, REQUESTS, DisagreementError
from benchmarks.calling.script import Errand, Scripts

CLIENT, PEER_CLIENT = "client, documents first", "client of llama.cpp, documents first"
BASELINE, FIRST, EXPORTED, EARLY, MASKED = "baseline", "documents first", "+ exported", "+ early", "+ masked"
SAME = (CLIENT, FIRST, EXPORTED, EARLY)
"""Those whose agents read the same, and so write the same."""
KEY = "benchmark/documents"
Agent = Callable[[Errand], Awaitable[Turns]]
Side = Inferlets | RequestingAgents


def _clients(sides: Mapping[str, Side]) -> dict[str, Agent]:
    """As far as the sides are there."""
    rungs = {CLIENT: REQUESTS, PEER_CLIENT: PEER}
    return {rung: sides[name].call_functions for rung, name in rungs.items() if name in sides}


def _programs(inferlets: Inferlets) -> dict[str, Agent]:
    agent = inferlets.call_functions
    return {
        BASELINE: agent,
        FIRST: agent,
        EXPORTED: partial(agent, key=KEY),
        EARLY: partial(agent, key=KEY, early=True),
        MASKED: partial(agent, key=KEY, early=True, masked=True),
    }


class Ladder:
    """Every agent has a session of its own, so that none finds another's words in the cache."""

    def __init__(self, sides: Mapping[str, Side], scripts: Scripts) -> None:
        inferlets = sides[INFERLET]
        assert isinstance(inferlets, Inferlets)
        self.rungs = _clients(sides) | _programs(inferlets)
        self._inferlets = inferlets
        self._scripts = scripts
        self._sessions = itertools.count(5000)

    async def export(self) -> None:
        """Puts the documents under the key, once, before agents come."""
        await self._inferlets.export(KEY, [token for document in self._scripts.documents() for token in document])

    async def withdraw(self) -> None:
        await self._inferlets.export(KEY, [])

    async def climb(self, rung: str, agents: int) -> float:
        """Seconds that so many agents take, all begun at once."""
        sessions = list(itertools.islice(self._sessions, agents))
        start = time.perf_counter()
        await asyncio.gather(*(self._agent(rung, session) for session in sessions))
        return time.perf_counter() - start

    async def check(self, exact: bool) -> None:
        """Every rung once, which also puts documents into every cache. Raises DisagreementError where turns have other lengths
        or, if ``exact``, what only differs in how it is done wrote other tokens."""
        session = next(self._sessions)
        spoken = {rung: await self._agent(rung, session) for rung in self.rungs}
        plain = spoken[FIRST]
        for rung, turns in spoken.items():
            # What is hidden after the first turn changes the ones that follow.
            same = 1 if rung == MASKED else len(plain) if rung in SAME else 0
            lengths = [len(turn) for turn in turns] == [len(turn) for turn in plain]
            if not lengths or (exact and turns[:same] != plain[:same]):
                raise DisagreementError(f"{rung!r} wrote {turns}, {FIRST!r} wrote {plain}")

    async def _agent(self, rung: str, session: int) -> Turns:
        return await self.rungs[rung](self._scripts.errand(session, first=rung != BASELINE))
