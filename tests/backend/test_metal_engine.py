"""The control layer on the Metal backend."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("tests.support.needs_mlx")

from pie_edge.backend import Backend
from tests.backend import openers
from tests.backend.engine_on_device import EngineOnDevice


class TestEngineOnMetal(EngineOnDevice):
    async def opened(self) -> Backend:
        return await asyncio.to_thread(openers.metal, memory=512 << 20, exact=True)
