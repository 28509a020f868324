"""Waiting for a device that one can only look at: the loop looks, when it is likely to see something."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod


class Polled(ABC):
    """A timeline that is looked at, at least ``look`` seconds apart."""

    look: float

    def __init__(self) -> None:
        self._reached = 0
        """The last number that was seen to be done."""
        self._latest = 0.0
        """Seconds that the latest wait took."""

    @abstractmethod
    def reached(self) -> int:
        """The last number that is done, as are all before it. Raises DeviceLost."""

    def is_reached(self, value: int) -> bool:
        return value <= self._reached or value <= self.reached()

    async def wait(self, value: int) -> None:
        """Until it is reached. Raises DeviceLost. Looks begin in the middle of what the latest wait took, and come forty times
        in as long: in a run of like steps few are in vain, and none is late by much."""
        if self.is_reached(value):
            return
        started = time.perf_counter()
        await asyncio.sleep(0.5 * self._latest)
        delay = max(self._latest / 40, self.look)
        while not self.is_reached(value):
            await asyncio.sleep(delay)
        self._latest = time.perf_counter() - started
