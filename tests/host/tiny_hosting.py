"""Running inferlets as Wasm guests on the tiny model: real keys and values, on the NumPy reference."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from pie_edge.control.engine import Engine
from pie_edge.host import Host, Limits
from tests.backend.test_engine import nothing_held
from tests.host.hosting import Ended, finish
from tests.support.reference_backend import ReferenceBackend
from tests.support.tiny import open_tiny
from tests.support.tiny_text import TinyTokenizer, TinyTurns

T = TypeVar("T")
TEMPLATE = "{{ messages }}"


@asynccontextmanager
async def tiny_host(
    *,
    data: Path | None = None,
    fingerprint: str = "tiny",
    top_k: int = 8,
    settings: dict[str, Any] | None = None,
    backend: ReferenceBackend | None = None,
    opening: Callable[..., Awaitable[Engine]] = open_tiny,
    tokenizer: Any = None,
    **limits: Any,
) -> AsyncIterator[tuple[Host, Engine]]:
    """At the end nothing may be left of any inferlet but what it exported."""
    engine = await opening(backend or ReferenceBackend(), **(settings or {}))
    host = await Host.open(
        engine,
        tokenizer or TinyTokenizer(),
        TinyTurns(),
        Limits(**{"time": 60.0, **limits}),
        data=data,
        fingerprint=lambda: fingerprint,
        template=TEMPLATE,
        top_k=top_k,
    )
    try:
        yield host, engine
    finally:
        await host.close()
        for name in list(engine.exports):
            engine.pool.give_back(engine.exports.pop(name))
        # Passes that were under way when their inferlet ended give their pages back when their step does.
        for _ in range(100):
            if nothing_held(engine):
                break
            await asyncio.sleep(0.01)
        left = not nothing_held(engine), set(host.instances), set(engine.spaces), len(host._facilities.topics)
        await engine.close()
    assert left == (False, set(), set(), 0)


def on_tiny(body: Callable[[Host, Engine], Awaitable[T]], **options: Any) -> T:
    """``body`` on a host of its own."""

    async def inside() -> T:
        async with tiny_host(**options) as (host, engine):
            return await body(host, engine)

    return asyncio.run(inside())


def run_tiny(program: Path | str, input: dict[str, Any] | None = None, **options: Any) -> Ended:
    """One program."""

    async def body(host: Host, _: Engine) -> Ended:
        return await finish(host, program, input, seed=1, name="program")

    return on_tiny(body, **options)
