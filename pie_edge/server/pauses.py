"""Events, and signs of life while there are none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TypeVar

T = TypeVar("T")


async def with_pauses(events: AsyncGenerator[T, None], seconds: float) -> AsyncGenerator[T | None, None]:
    """The events, and None whenever none has come for so long. Closes them at the end."""
    coming = asyncio.ensure_future(anext(events))
    try:
        while True:
            done, _ = await asyncio.wait({coming}, timeout=seconds)
            if not done:
                yield None
                continue
            try:
                event = coming.result()
            except StopAsyncIteration:
                return
            yield event
            coming = asyncio.ensure_future(anext(events))
    finally:
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)
        await events.aclose()
