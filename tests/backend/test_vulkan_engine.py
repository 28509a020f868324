"""The control layer on the Vulkan backend."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

pytest.importorskip("tests.support.needs_vulkan")

from pie_edge.backend import Backend
from tests.backend import openers
from tests.backend.engine_on_device import EngineOnDevice
from tests.backend.test_engine import engine_on, expected, next_token, run
from tests.backend.test_observation import LONG, close, masses, observe
from tests.support.vulkan import counted_submits


async def opened() -> Backend:
    return await asyncio.to_thread(openers.vulkan, memory=512 << 20, exact=True)


class TestEngineOnVulkan(EngineOnDevice):
    async def opened(self) -> Backend:
        return await opened()


def on_vulkan(test: Callable[[Backend], Coroutine[Any, Any, None]]) -> None:
    async def body() -> None:
        await test(await opened())

    run(body)


def test_a_step_is_one_submit_of_its_model_pass_and_its_epilogue(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(backend: Backend) -> None:
        async with engine_on(backend) as engine:
            space = engine.open_space("one", 0)
            context = space.create_working_set(16)
            token = await next_token(space, context, [7, 8, 9], 0)
            with counted_submits(monkeypatch) as submits:
                for place in range(3, 11):
                    token = await next_token(space, context, [token], place)
            assert len(submits) >= 8
            assert set(submits) == {2}

    on_vulkan(test)


def test_passes_of_one_step_observe_what_each_asked_for() -> None:
    async def test(backend: Backend) -> None:
        async with engine_on(backend, rows=128, shared_rows=128) as engine:
            assert engine.abilities.observable_layers == 2
            space = engine.open_space("observes", 0)
            first, second = (space.create_working_set(128) for _ in range(2))
            whole, chunks = await asyncio.gather(
                observe(space, first, LONG[:21], 0, (0, 1), (3, 20)), observe(space, second, LONG, 0, (1,), (98, 99))
            )
            close(whole, masses(LONG[:21], (0, 1), (3, 20)))
            close(chunks, masses(LONG, (1,), (98, 99)))
            branch = space.fork(first)
            close(await observe(space, branch, [3, 4], 21, (0, 1)), masses([*LONG[:21], 3, 4], (0, 1)))
            assert await next_token(space, first, [3], 21) == expected([*LONG[:21], 3], 1)[0]

    on_vulkan(test)
