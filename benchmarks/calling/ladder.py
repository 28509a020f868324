"""The ladder of function calls: agents that read API documents and call functions, with one more of a program's means on each
rung."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Mapping
from typing import Any

from benchmarks.calling.client import Turns
from benchmarks.calling.compare import Disagreement
from benchmarks.calling.loopback import Client
from benchmarks.calling.script import Scripts, Sizes

BASELINE, FIRST, EXPORTED, EARLY, MASKED = "baseline", "documents first", "+ exported", "+ early", "+ masked"
KEY = "benchmark/documents"
RUNGS: Mapping[str, Mapping[str, Any]] = {
    BASELINE: {"first": False, "key": "", "early": False, "masked": False},
    FIRST: {"first": True, "key": "", "early": False, "masked": False},
    EXPORTED: {"first": True, "key": KEY, "early": False, "masked": False},
    EARLY: {"first": True, "key": KEY, "early": True, "masked": False},
    MASKED: {"first": True, "key": KEY, "early": True, "masked": True},
}


class Ladder:
    """On one server. Every agent has a session of its own, so that none finds another's words in the cache."""

    def __init__(self, server: Client, tool: str, scripts: Scripts, sizes: Sizes) -> None:
        self._server = server
        self._scripts = scripts
        self._told = {"documents": scripts.documents(), "turn": sizes.turn, "tool": tool}
        self._sessions = itertools.count(5000)

    async def export(self) -> None:
        """Puts the documents into the cache, once, before agents come."""
        ids = [token for document in self._scripts.documents() for token in document]
        await self._run("document", {"key": KEY, "ids": ids})

    async def withdraw(self) -> None:
        await self._run("document", {"key": KEY, "ids": []})

    async def climb(self, rung: str, agents: int) -> float:
        """Seconds that so many agents take, all begun at once."""
        sessions = list(itertools.islice(self._sessions, agents))
        start = time.perf_counter()
        await asyncio.gather(*(self._agent(rung, session) for session in sessions))
        return time.perf_counter() - start

    async def check(self) -> None:
        """Raises Disagreement where rungs that only differ in when something is done write different tokens."""
        session = next(self._sessions)
        spoken = {rung: await self._agent(rung, session) for rung in RUNGS if rung != BASELINE}
        plain = spoken.pop(FIRST)
        for rung, turns in spoken.items():
            # What is hidden after the first turn changes the ones that follow.
            alike = turns[:1] == plain[:1] if rung == MASKED else turns == plain
            if not alike:
                raise Disagreement(f"{rung!r} wrote {turns}, {FIRST!r} wrote {plain}")

    async def _agent(self, rung: str, session: int) -> Turns:
        told = {**self._told, **RUNGS[rung], "prompt": self._scripts.own(session)}
        return list(await self._run("functions", told))

    async def _run(self, program: str, input: Mapping[str, Any]) -> Any:
        return await self._server.post("/run", {"program": program, "input": input})
