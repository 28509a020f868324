"""Ctrl-C: one ends a command, and those that follow don't disturb it while it closes what it has open.

A thread may be inside the driver of a device just then; a process that ends under it crashes.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
INTERRUPTED = 130
"""The exit status."""

GRACE_SECONDS = 10.0
"""What closing may take before another Ctrl-C ends the process as it is."""


def run(work: Coroutine[Any, Any, T]) -> T:
    """``asyncio.run``; the first Ctrl-C cancels ``work``, and when that has ended raises KeyboardInterrupt."""
    import asyncio

    interrupted, before = False, signal.getsignal(signal.SIGINT)

    async def inside() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def cancel() -> None:
            nonlocal interrupted
            interrupted = True
            loop.call_soon_threadsafe(task.cancel)

        once(cancel)
        return await work

    try:
        return asyncio.run(inside())
    except asyncio.CancelledError:
        if interrupted:
            raise KeyboardInterrupt from None
        raise
    finally:
        if not interrupted and _is_main_thread():
            signal.signal(signal.SIGINT, before)


def once(interrupt: Callable[[], None]) -> None:
    """From now on the first Ctrl-C calls ``interrupt``, in the main thread; later ones do nothing, unless closing takes longer
    than it should. A command that was started deaf to Ctrl-C stays so."""
    if not _is_main_thread() or signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        return
    signal.signal(signal.SIGINT, _Once(interrupt))


def settled() -> None:
    """After an interrupted command has closed everything: no Ctrl-C disturbs Python's own end. Python would undo a handler of
    ours on the way, but not this."""
    if _is_main_thread() and isinstance(signal.getsignal(signal.SIGINT), _Once):
        signal.signal(signal.SIGINT, signal.SIG_IGN)


class _Once:
    """A handler of SIGINT."""

    def __init__(self, interrupt: Callable[[], None]) -> None:
        self._interrupt = interrupt
        self._began = 0.0

    def __call__(self, number: int, frame: object) -> None:
        if not self._began:
            self._began = time.monotonic()
            self._interrupt()
        elif time.monotonic() - self._began > GRACE_SECONDS:
            os._exit(INTERRUPTED)


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
