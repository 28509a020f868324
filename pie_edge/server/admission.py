"""Who works, and who waits: as many requests at once as memory has room for, the others in the order they came in."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pie_edge.errors import Overloaded
from pie_edge.host import memory

_AT_ONCE = 64
"""More streams than this share a device's steps no better, and each takes its memory."""
_SHARE = 4
"""Of the memory that is free at the start, requests get one part in so many."""


def room() -> int:
    """How many requests to work on at once where the settings leave it open."""
    return memory.room(_SHARE, _AT_ONCE)


class Admission:
    def __init__(self, at_once: int, longest_queue: int) -> None:
        self.at_once = at_once
        self.working = 0
        self._longest_queue = longest_queue
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        return sum(not one.done() for one in self._waiting)

    def beside(self, at_once: int) -> Admission:
        """For what is done at once and needn't wait for the others, with a queue as long."""
        return Admission(at_once, self._longest_queue)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Waits for one, first come, first served. Raises Overloaded if too many wait already."""
        await self._enter()
        try:
            yield
        finally:
            self.working -= 1
            self._call_next()

    async def _enter(self) -> None:
        if self.working < self.at_once and not self.waiting:
            self.working += 1
            return
        if self.waiting >= self._longest_queue:
            raise Overloaded(
                f"{self.working} requests are worked on and {self.waiting} wait, as many as may; try again in a moment"
            )
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it had its turn at the very moment: the next one gets it
                self.working -= 1
                self._call_next()
            raise

    def _call_next(self) -> None:
        while self._waiting and self.working < self.at_once:
            turn = self._waiting.popleft()
            if not turn.done():
                self.working += 1
                turn.set_result(None)
