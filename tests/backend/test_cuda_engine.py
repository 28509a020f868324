"""The control layer on the CUDA backend, on the emulator or on a card."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("tests.support.needs_simt")

from pie_edge.backend import Backend
from tests.backend import openers
from tests.backend.engine_on_device import EngineOnDevice


class TestEngineOnCuda(EngineOnDevice):
    async def opened(self) -> Backend:
        return await asyncio.to_thread(openers.cuda, memory=512 << 20, exact=True)
