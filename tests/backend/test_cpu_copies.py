"""The cpu backend's copies, alone and with several threads."""

from __future__ import annotations

import asyncio

import pytest

from pie_edge.backends.cpu.backend import open_cpu
from tests.backend import copy_cases


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", copy_cases.PAIRS)
def test_copies_leave_what_the_reference_leaves(name: str, threads: int) -> None:
    async def test() -> None:
        backend = await open_cpu(threads=threads, memory=64 << 20)
        try:
            await copy_cases.check(backend, name)
        finally:
            await backend.close()

    asyncio.run(test())
