"""The control layer on the wgpu backend."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("tests.support.needs_wgpu")

from pie_edge.backend import Backend
from pie_edge.backends.wgpu.backend import Live, Options, WgpuBackend
from tests.backend.engine_on_device import EngineOnDevice


async def opened() -> WgpuBackend:
    options = Options(memory=512 << 20, exact=True)
    return WgpuBackend(options, await asyncio.to_thread(Live, options))


class TestEngineOnWgpu(EngineOnDevice):
    async def opened(self) -> Backend:
        return await opened()
