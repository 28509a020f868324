"""The engine's process with the tiny model: ``python -m tests.server.tiny_engine``, for the supervisor to start."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

from pie_edge.config import Settings
from pie_edge.control.parking import Spill
from pie_edge.errors import BadCheckpoint, DeviceLost
from pie_edge.host import Host, Limits, memory
from pie_edge.protocol.messages import ModelCard
from pie_edge.server.engine.opened import Opened
from pie_edge.server.engine.process import main
from tests.support.reference_backend import ReferenceBackend
from tests.support.tiny import open_tiny
from tests.support.tiny_text import TinyTokenizer, TinyTurns

CARD = ModelCard("tiny", 256, 1_700_000_000, True, False, "A tiny random llama", "reference", "NumPy", vocabulary=64)


async def open_engine(settings: Settings, progress: Any) -> Opened:
    """``model`` says how it goes: ``tiny``, ``slow`` or ``broken``."""
    progress(0, 2, "reading nothing")
    if settings.model == "slow":
        await asyncio.sleep(30)
    if settings.model == "broken":
        raise BadCheckpoint("broken.gguf is no checkpoint; name another")
    spill: Spill | None = None
    backend = ReferenceBackend(sticky=True)
    engine = await open_tiny(backend, spill, kv_memory=settings.kv_memory or 1 << 20)
    tokenizer: Any = TinyTokenizer()
    limits = Limits(time=settings.limits.time, memory=settings.limits.memory)
    host = await Host.open(
        engine, tokenizer, TinyTurns(), limits, progress=progress, max_instances=settings.max_instances or memory.room()
    )
    progress(2, 2, "reading nothing")

    def held(_: str) -> str:
        """Pages that aren't free, and inferlets alive."""
        return json.dumps(
            {
                "pages": engine.pool.total - engine.pool.free - engine.prefixes.reclaimable,
                "spaces": len(engine.spaces),
                "inferlets": len(host.instances),
                "process": os.getpid(),
            }
        )

    def lose(why: str) -> str:
        """From now on the device is lost."""
        backend.lost = DeviceLost(why)
        return ""

    def fail(why: str) -> str:
        """As no answer should."""
        raise KeyError(why)

    async def close() -> None:
        await host.close()
        await engine.close()

    answers = {"held": held, "lose": lose, "fail": fail, "metrics": lambda _: json.dumps({"info": {}} | host.metrics())}
    return Opened(host, CARD, answers, close)


if __name__ == "__main__":
    main(open_engine)
