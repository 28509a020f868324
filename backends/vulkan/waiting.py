"""Waiting for the device without holding up the event loop."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from pie_edge.backends.vulkan.timeline import Timeline
from pie_edge.errors import DeviceLost

_LOOK, _LONGEST_LOOK = 0.002, 0.016
"""Seconds after which the loop looks itself, twice as long each time: a thread that should wake up may starve beside busy
Python."""
_SLICE = 0.25
"""Seconds a thread waits at most, so that closing is never held up."""


class Waiter:
    """A thread of its own waits for each reader. The loop looks as well, but not before the time that the latest wait took is
    over: in a run of like steps the threads nearly always wake it first, and looks that see nothing cost a turn each."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="pie-edge vulkan wait")
        self._latest = 0.0
        """Seconds that the latest wait took."""

    async def wait(self, value: int) -> None:
        """Until the timeline reaches ``value``. Raises DeviceLost."""
        if self._timeline.reached() >= value:
            return
        started = time.perf_counter()
        first_look = min(self._latest, _SLICE) + _LOOK
        while self._timeline.reached() < value:
            await self._either(value, first_look)
            first_look = _LOOK
        self._latest = time.perf_counter() - started

    async def _either(self, value: int, first_look: float) -> None:
        """Until a thread was told that it is reached, or that its slice is over; or until a look shows it."""
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        looking = loop.call_later(first_look, lambda: look(2 * _LOOK))

        def wake() -> None:
            if not woken.done():
                woken.set_result(None)

        def wake_from_thread(waited: Future[bool]) -> None:
            waited.exception()  # The loop finds the same when it looks.
            with suppress(RuntimeError):  # The loop is closed.
                loop.call_soon_threadsafe(wake)

        def look(delay: float) -> None:
            nonlocal looking
            if self._is_reached(value):
                wake()
            else:
                looking = loop.call_later(delay, look, min(2 * delay, _LONGEST_LOOK))

        self._threads.submit(self._timeline.wait, value, round(1e9 * _SLICE)).add_done_callback(wake_from_thread)
        try:
            await woken
        finally:
            looking.cancel()

    def _is_reached(self, value: int) -> bool:
        """Also where the device is lost: who waits finds out."""
        try:
            return self._timeline.reached() >= value
        except DeviceLost:
            return True

    def close(self) -> None:
        self._threads.shutdown(wait=True)
