"""Waiting for the device without holding up the event loop."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from pie_edge.backends.vulkan.timeline import Timeline

_LOOK = 0.002
"""Seconds after which the loop looks itself: a thread that should wake up may starve beside busy Python."""
_SLICE = 50_000_000
"""Nanoseconds a thread waits at most, so that closing is never held up."""


class Waiter:
    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="pie-edge vulkan wait")

    async def wait(self, value: int) -> None:
        """Until the timeline reaches ``value``. Raises DeviceLost."""
        loop = asyncio.get_running_loop()
        while self._timeline.reached() < value:
            waiting = loop.run_in_executor(self._threads, self._timeline.wait, value, _SLICE)
            while not waiting.done():
                await asyncio.wait({waiting}, timeout=_LOOK)
                if self._timeline.reached() >= value:
                    # It ends by itself: the thread sees the same.
                    waiting.add_done_callback(_ignore)
                    return
            waiting.result()

    def close(self) -> None:
        self._threads.shutdown(wait=True)


def _ignore(future: asyncio.Future[bool]) -> None:
    if not future.cancelled():
        future.exception()
