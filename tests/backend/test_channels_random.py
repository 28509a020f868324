"""Random programs answer the same whether they await every pass or take from the device what they need."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pie_edge.backend import Backend
from pie_edge.backends.cpu.backend import open_cpu
from tests.backend.taking import Wanderer, ended
from tests.backend.test_engine import PAGE_BYTES, engine_on, run
from tests.support.reference_backend import ReferenceBackend


async def reference() -> Backend:
    return ReferenceBackend()


async def cpu() -> Backend:
    return await open_cpu(threads=2, memory=256 << 20)


async def vulkan() -> Backend:
    pytest.importorskip("tests.support.needs_vulkan")
    from tests.backend.test_vulkan_engine import opened

    return await opened()


def check(open_backend: Callable[[], Awaitable[Backend]], seed: int) -> None:
    async def logs(at_once: bool, together: bool, **settings: Any) -> list[list[tuple[int, ...]]]:
        backend: Any = await open_backend()
        async with engine_on(backend, **settings) as engine:
            spaces = [engine.open_space(f"wanderer {i}", seed + i) for i in range(3)]
            programs = [Wanderer(space, seed + i, at_once=at_once) for i, space in enumerate(spaces)]
            if together:
                found = list(await asyncio.gather(*(program.run() for program in programs)))
            else:
                found = [await program.run() for program in programs]
            await ended(engine, *spaces)
            return found

    async def test() -> None:
        wanted = await logs(True, together=False, speculation_depth=0)
        assert await logs(False, together=False) == wanted
        assert await logs(False, together=True, speculation_depth=0) == wanted
        assert await logs(False, together=True, kv_memory=28 * PAGE_BYTES, sequences=2) == wanted

    run(test)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1))
def test_on_the_reference(seed: int) -> None:
    check(reference, seed)


@pytest.mark.parametrize("seed", [3, 8])
def test_on_the_cpu_kernels(seed: int) -> None:
    check(cpu, seed)


@pytest.mark.parametrize("seed", [3])
def test_on_vulkan(seed: int) -> None:
    check(vulkan, seed)
