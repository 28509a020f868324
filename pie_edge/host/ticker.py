"""The epoch clock that takes turns away from guests."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wasmtime import Engine

_IDLE_TICKS = 50


class Ticker:
    """A thread that advances the engine's epoch every ``period`` seconds while guests run, and sleeps otherwise.

    It must be a thread: the loop's own thread is inside of the guest that has to be interrupted.
    """

    def __init__(self, engine: Engine, period: float = 0.001) -> None:
        self._engine = engine
        self._period = period
        self._needed = False
        self._asleep = False
        self._closed = False
        self._alarm = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pie-edge epochs", daemon=True)
        self._thread.start()

    def touch(self) -> None:
        """A guest is about to run."""
        self._needed = True
        if self._asleep:
            self._alarm.set()

    def close(self) -> None:
        self._closed = True
        self._alarm.set()
        self._thread.join()

    def _run(self) -> None:
        idle = 0
        while not self._closed:
            time.sleep(self._period)
            self._engine.increment_epoch()
            idle = 0 if self._needed else idle + 1
            self._needed = False
            if idle >= _IDLE_TICKS:
                self._sleep()
                idle = 0

    def _sleep(self) -> None:
        self._alarm.clear()
        self._asleep = True
        # touch() sets ``_needed`` before it looks at ``_asleep``: one of the two sides sees the other.
        if not self._needed and not self._closed:
            self._alarm.wait()
        self._asleep = False
