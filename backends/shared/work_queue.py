"""Work in order on one thread, and tickets to wait for it from asyncio."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pie_edge.errors import DeviceLost, PieError


class Ticket:
    """Work that was enqueued: pending, then done with a result or an error."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._result: Any = None
        self._error: PieError | None = None
        self._over = threading.Event()

    @property
    def done(self) -> bool:
        return self._over.is_set()

    def finish(self, result: Any, error: PieError | None) -> None:
        with self._lock:
            self._result, self._error = result, error
            self._over.set()
            waiters, self._waiters = self._waiters, []
        for loop, future in waiters:
            # The loop may have been closed while the device worked.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_wake, future)

    def join(self) -> None:
        """Block until it is done, whatever came of it."""
        self._over.wait()

    async def wait(self) -> Any:
        """The result. Raises the work's error."""
        if not self.done:
            loop = asyncio.get_running_loop()
            future = loop.create_future()
            with self._lock:
                if not self.done:
                    self._waiters.append((loop, future))
                else:
                    future.set_result(None)
            await future
        if self._error is not None:
            raise self._error
        return self._result


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():  # whoever waited may have been cancelled
        future.set_result(None)


class WorkQueue:
    """A thread that does what is put, in order. It sleeps when there is nothing to do. ``title`` is the backend's, in errors."""

    def __init__(self, name: str, title: str) -> None:
        self._title = title
        self._work: queue.SimpleQueue[tuple[Callable[[], Any], Ticket] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)
        self._thread.start()
        self._closed = False

    def put(self, work: Callable[[], Any]) -> Ticket:
        """Enqueue. Raises DeviceLost once closed."""
        if self._closed:
            raise DeviceLost(f"the {self._title} backend was closed; open it again")
        ticket = Ticket()
        self._work.put((work, ticket))
        return ticket

    def close(self) -> None:
        """Finish what is enqueued, then end the thread. May be called twice."""
        if not self._closed:
            self._closed = True
            self._work.put(None)
            self._thread.join()

    def _loop(self) -> None:
        while (item := self._work.get()) is not None:
            work, ticket = item
            try:
                ticket.finish(work(), None)
            except PieError as error:
                ticket.finish(None, error)
            except Exception as error:
                lost = DeviceLost(
                    f"the {self._title} backend failed in the middle of work: {type(error).__name__}: {error}"
                )
                lost.__cause__ = error
                ticket.finish(None, lost)
            del item, work, ticket  # a waiting queue should keep no buffers alive
