"""Whose turn it is: the loop's other work never waits for more than a slice, and no guest is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from pie_edge.host import schedule as module
from pie_edge.host.schedule import Schedule

BUDGET = 0.004


class Clock:
    """Only what guests do takes time, so that a busy machine changes nothing."""

    now = 0.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    return clock


class Busy:
    """A guest that works for ``seconds`` at each turn, and is woken again at once."""

    id = "busy"

    def __init__(self, clock: Clock, schedule: Schedule, seconds: float, turns: int, spins: bool = False) -> None:
        self._clock, self._schedule, self._seconds, self._spins = clock, schedule, seconds, spins
        self.left = turns

    def advance(self) -> bool:
        self._clock.now += self._seconds
        self.left -= 1
        if self.left > 0 and not self._spins:
            asyncio.get_running_loop().call_soon(self._schedule.wake, self)
        return self._spins and self.left > 0


def chain(turns: int, done: Callable[[], None]) -> None:
    """Something that takes so many turns of the loop, as an answer from the device does."""
    asyncio.get_running_loop().call_soon(done if turns == 1 else lambda: chain(turns - 1, done))


def slices_beside(clock: Clock, spins: bool) -> list[float]:
    """How long chains of four turns take beside thirty busy guests, in slices."""

    async def body() -> list[float]:
        schedule = Schedule(asyncio.get_running_loop(), BUDGET)
        guests = [Busy(clock, schedule, BUDGET / 4, 12, spins) for _ in range(30)]
        for guest in guests:
            schedule.wake(guest)
        found = []
        while any(guest.left > 0 for guest in guests):
            over, start = asyncio.Event(), clock.now
            chain(4, over.set)
            await over.wait()
            found.append((clock.now - start) / BUDGET)
        return found

    return sorted(asyncio.run(body()))


def test_what_takes_several_turns_of_the_loop_waits_for_one_slice_of_woken_guests(clock: Clock) -> None:
    found = slices_beside(clock, spins=False)
    assert found[len(found) // 2] < 2


def test_what_takes_several_turns_of_the_loop_waits_for_one_slice_of_spinning_guests(clock: Clock) -> None:
    found = slices_beside(clock, spins=True)
    assert found[len(found) // 2] < 2


def test_a_crowd_that_starts_delays_nobody_who_was_woken(clock: Clock) -> None:
    """Of thirty guests that start, each in ten slices, and one that is woken again and again."""

    async def body() -> float:
        schedule = Schedule(asyncio.get_running_loop(), BUDGET)
        for _ in range(30):
            schedule.start(Busy(clock, schedule, BUDGET, 10, spins=True))
        reader = Busy(clock, schedule, BUDGET / 4, 20)
        schedule.wake(reader)
        while reader.left > 0:
            await asyncio.sleep(0)
        return clock.now

    assert asyncio.run(body()) < 20 * 2 * BUDGET


def test_those_who_start_have_turns_while_others_are_woken_without_end(clock: Clock) -> None:
    async def body() -> int:
        schedule = Schedule(asyncio.get_running_loop(), BUDGET)
        for _ in range(30):
            schedule.wake(Busy(clock, schedule, BUDGET / 4, 1000))
        late = Busy(clock, schedule, BUDGET / 4, 10, spins=True)
        schedule.start(late)
        while clock.now < 100 * BUDGET:
            await asyncio.sleep(0)
        return late.left

    assert asyncio.run(body()) <= 0
