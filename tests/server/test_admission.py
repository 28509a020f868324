"""Whose turn it is among requests."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pie_edge.errors import Overloaded
from pie_edge.host import memory
from pie_edge.server.admission import Admission, room


def test_turns_are_taken_first_come_first_served_and_so_many_at_once() -> None:
    async def body() -> None:
        admission, began, most = Admission(3, 100), list[int](), 0

        async def request(number: int) -> None:
            nonlocal most
            async with admission.turn():
                began.append(number)
                most = max(most, admission.working)
                await asyncio.sleep(0)

        await asyncio.gather(*map(request, range(50)))
        assert began == list(range(50))
        assert (most, admission.working, admission.waiting) == (3, 0, 0)

    asyncio.run(body())


def test_one_more_than_may_wait_is_refused_with_the_counts() -> None:
    async def body() -> None:
        admission = Admission(1, 1)
        async with admission.turn():
            waiting = asyncio.create_task(_pass(admission))
            await asyncio.sleep(0)
            with pytest.raises(Overloaded, match="1 requests are worked on and 1 wait"):
                await _pass(admission)
        await waiting

    asyncio.run(body())


async def _pass(admission: Admission) -> None:
    async with admission.turn():
        pass


@given(st.lists(st.sampled_from(["come", "leave", "give up", "turn"]), max_size=60), st.integers(1, 3))
def test_whoever_gives_up_whenever_no_turn_is_lost(acts: list[str], at_once: int) -> None:
    async def body() -> None:
        admission = Admission(at_once, 100)
        tasks: list[asyncio.Task[None]] = []
        leaving: dict[asyncio.Task[None], asyncio.Event] = {}

        async def request(leave: asyncio.Event) -> None:
            async with admission.turn():
                await leave.wait()

        for act in acts:
            alive = [task for task in tasks if not task.done()]
            if act == "come":
                leave = asyncio.Event()
                tasks.append(asyncio.create_task(request(leave)))
                leaving[tasks[-1]] = leave
            elif act == "leave" and alive:
                leaving[alive[0]].set()
            elif act == "give up" and alive:
                alive[-1].cancel()
            elif act == "turn":
                await asyncio.sleep(0)
            assert admission.working <= at_once
        for leave in leaving.values():
            leave.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (admission.working, admission.waiting) == (0, 0)

    asyncio.run(body())


def test_by_default_there_is_room_for_some_and_not_for_more_than_steps_gain_from() -> None:
    assert 1 <= room() <= 64


@pytest.mark.parametrize(("free", "requests", "inferlets"), [(2**40, 64, 1000), (2**30, 25, 51), (2**20, 1, 1)])
def test_how_many_there_is_room_for_follows_from_the_memory_that_is_free(
    free: int, requests: int, inferlets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_free_memory", lambda: free)
    assert (room(), memory.room()) == (requests, inferlets)
