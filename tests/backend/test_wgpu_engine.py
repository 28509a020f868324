"""The control layer on the wgpu backend."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("tests.support.needs_wgpu")

from pie_edge.backend import Backend
from tests.backend import openers
from tests.backend.engine_on_device import EngineOnDevice


async def opened() -> Backend:
    return await asyncio.to_thread(openers.wgpu, memory=512 << 20, exact=True)


class TestEngineOnWgpu(EngineOnDevice):
    async def opened(self) -> Backend:
        return await opened()
