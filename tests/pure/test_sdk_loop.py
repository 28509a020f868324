"""The SDK's event loop: how often it calls the host, and in what order things reach it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support import sdk
from tests.support.sdk import PlayedHost, install, scalar

from inferlet._loop import Loop, StuckError  # isort: skip
from inferlet.errors import OutOfPages  # isort: skip
from inferlet.eta import ForwardPass, Pipeline, WorkingSet, intrinsics, ops, reduce_argmax  # isort: skip
from inferlet import eta  # isort: skip


@pytest.fixture
def host() -> PlayedHost:
    return install(lambda call: scalar(7) if call.epilogue else [])


def in_loop(main: Any) -> Any:
    loop = Loop()
    try:
        return loop.run_until_complete(main)
    finally:
        loop.close()


def launch(context: WorkingSet, start: int, tokens: list[int]) -> Any:
    step = ForwardPass()
    step.embed(tokens)
    step.bind_state(context, context.geometry(start, start + len(tokens)))
    best = step.epilogue(lambda: reduce_argmax(intrinsics.logits()))
    Pipeline().submit(step)
    return best


def test_a_step_is_one_call(host: PlayedHost) -> None:
    async def main() -> list[int]:
        context = WorkingSet(tokens=16)
        return [await launch(context, place, [1]) for place in range(5)]

    assert in_loop(main()) == [7] * 5
    assert host.waits == [(1, None)] * 5


def test_passes_of_several_tasks_share_a_call(host: PlayedHost) -> None:
    async def one(context: WorkingSet) -> Any:
        return await launch(context, 0, [1])

    async def tasks() -> Any:
        return await asyncio.gather(*[one(WorkingSet(tokens=16)) for _ in range(6)])

    assert in_loop(tasks()) == [7] * 6
    assert host.waits == [(6, None)]


def test_a_change_of_a_context_comes_behind_the_passes_before_it(host: PlayedHost) -> None:
    async def main() -> None:
        context = WorkingSet(tokens=16)
        launch(context, 0, [1, 2])
        copy = context.fork()
        launch(copy, 2, [3])
        context.discard(0, 1)
        copy.reserve(2)
        context.close()

    in_loop(main())
    assert host.log == [
        "create 16",
        "forward 1 0-2",
        "fork 1",
        "forward 101 2-3",
        "discard 1 0 1",
        "reserve 101 2",
        "close 1",
    ]


def test_a_timer_is_the_call_s_timeout(host: PlayedHost) -> None:
    async def main() -> None:
        await asyncio.sleep(0.01)

    in_loop(main())
    assert len(host.waits) > 0
    assert all(count == 0 and timeout is not None and timeout <= 10_000_000 for count, timeout in host.waits)


def test_waiting_for_nothing_is_noticed(host: PlayedHost) -> None:
    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    loop = Loop()
    task = loop.create_task(main())
    with pytest.raises(StuckError):
        loop.run_until_complete(task)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    loop.close()
    assert host.waits == []


def test_an_error_comes_out_where_its_pass_is_awaited() -> None:
    install(lambda call: OutOfPages("none left"))

    async def main() -> None:
        context = WorkingSet(tokens=16)
        best = launch(context, 0, [1])
        with pytest.raises(OutOfPages, match="none left"):
            await best

    in_loop(main())


def test_an_output_can_be_awaited_twice(host: PlayedHost) -> None:
    async def main() -> list[int]:
        best = launch(WorkingSet(tokens=16), 0, [1])
        return [await best, await best]

    assert in_loop(main()) == [7, 7]


def test_every_operation_is_a_name_of_eta() -> None:
    public = {
        name
        for name, value in vars(ops).items()
        if callable(value) and getattr(value, "__module__", "") == ops.__name__ and not name.startswith("_")
    }
    assert public <= set(eta.__all__)
    assert all(hasattr(eta, name) for name in eta.__all__)


def test_without_a_host_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdk._host, "_installed", None)
    with pytest.raises(RuntimeError, match="pie-edge run FILE"):
        WorkingSet(tokens=1)
