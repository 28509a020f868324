"""The control layer on the cpu backend's real kernels."""

from __future__ import annotations

from pie_edge.backend import Backend
from pie_edge.backends.cpu.backend import open_cpu
from tests.backend.engine_on_device import EngineOnDevice


class TestEngineOnCpu(EngineOnDevice):
    async def opened(self) -> Backend:
        return await open_cpu(threads=2, memory=256 << 20)
