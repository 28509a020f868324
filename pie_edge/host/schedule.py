"""Whose turn it is among guests that share the loop's thread.

The loop's other work goes first, the device above all; then guests that were woken, for at most ``budget`` seconds; then,
if there is none, one guest that starts, or that went on for several slices since it was woken. So guests delay everybody else
by at most a slice, however many they are, and a crowd that starts doesn't delay those who have an answer to read. While
somebody is always woken, each fourth slice is for the others.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Protocol

from pie_edge.control.statistics import SECONDS, Histogram, Timeline

_HOPS = 4
"""Turns of the loop between two slices: an answer from the device becomes the next step, and wakes a guest, in that many. With
a slice in each of them, a step would wait for several."""
_IN_A_ROW = 3
"""Slices of woken guests while others wait for one."""
PATIENCE = 4
"""Slices after which a guest that was woken counts among the others. The clock that ends slices doesn't begin with them: what
takes half of one is often cut."""


class Runnable(Protocol):
    @property
    def id(self) -> str: ...

    def advance(self) -> bool:
        """Runs until it blocks or ends (False), or its slice is over (True). Raises nothing."""


class Schedule:
    """With the millisecond that the last guest of a slice may run beyond ``budget``, a slice ends within two. ``turns`` are how
    long guests ran at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, budget: float = 0.001) -> None:
        self._loop = loop
        self._budget = budget
        self.turns = Histogram(SECONDS)
        self.timeline: Timeline | None = None
        self._woken: deque[tuple[Runnable, int]] = deque()
        """With the slices that are left to each."""
        self._others: deque[Runnable] = deque()
        self._in_a_row = 0
        self._armed = False

    def wake(self, guest: Runnable) -> None:
        """``guest`` can go on."""
        self._woken.append((guest, PATIENCE))
        self._arm(0)

    def start(self, guest: Runnable) -> None:
        """``guest`` is new."""
        self._others.append(guest)
        self._arm(0)

    def _arm(self, hops: int) -> None:
        if not self._armed:
            self._armed = True
            self._loop.call_soon(self._turn, hops)

    def _turn(self, hops: int) -> None:
        self._armed = False
        if hops > 0:
            hops -= 1
        elif self._woken and (self._in_a_row < _IN_A_ROW or not self._others):
            self._in_a_row += 1
            self._run_woken()
            hops = _HOPS
        elif self._others:
            self._in_a_row = 0
            self._run(self._others.popleft(), 0)
            hops = _HOPS
        if self._woken or self._others:
            self._arm(hops)

    def _run_woken(self) -> None:
        end = time.perf_counter() + self._budget
        while self._woken:
            if self._run(*self._woken.popleft()) >= end:
                return

    def _run(self, guest: Runnable, left: int) -> float:
        """When its turn was over."""
        began = time.perf_counter()
        if guest.advance():
            if left > 1:
                self._woken.append((guest, left - 1))
            else:
                self._others.append(guest)
        ended = time.perf_counter()
        self.turns.add(ended - began)
        if self.timeline is not None:
            self.timeline.span("guest", guest.id, began, ended)
        return ended
