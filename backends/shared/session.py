"""What an open device owns, whatever the API, and when it is given back: what may still be in use is destroyed once the device is
past it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from threading import RLock
from typing import Any, Generic, Protocol

from pie_edge.backend import Stop
from pie_edge.backends.shared.region import B
from pie_edge.errors import OutOfMemory


class Timeline(Protocol):
    submitted: int
    """The number of what was enqueued last."""

    def reached(self) -> int:
        """The last number that is done. Raises DeviceLost."""

    def drain(self) -> None:
        """Block until everything that was enqueued is done."""


class BaseSession(Generic[B]):
    def __init__(self, memory: Any, timeline: Timeline, lock: RLock, stop: Stop | None) -> None:
        self.stop = stop or Stop()
        """Asked when the opening of this device was given up."""
        self.memory = memory
        self.lock = lock
        """Held while things are enqueued and while memory is given out: the loop's thread runs steps while a worker's loads and
        compiles."""
        self._enqueued = timeline
        self._retired: deque[tuple[int, Callable[[], None]]] = deque()
        """What to do once the timeline reaches a number."""
        self._buffers: set[B] = set()
        self._closed = False

    def _made(self, make: Callable[[], B]) -> B:
        """A buffer. Raises OutOfMemory, but not before what was given back has been waited for."""
        with self.lock:
            self.collect()
            try:
                made = make()
            except OutOfMemory:
                if not self._retired:
                    raise
                self._enqueued.drain()
                self.collect()
                made = make()
            self._buffers.add(made)
            return made

    def free(self, buffer: B) -> None:
        """After the runs before it."""
        self.retire(partial(self._destroy, buffer))

    def _destroy(self, buffer: B) -> None:
        self._buffers.discard(buffer)
        self.memory.free(buffer)

    def retire(self, destroy: Callable[[], None]) -> None:
        """Do this once everything that was enqueued so far is done; nothing if the session is closed by then."""
        if not self._closed:
            self._retired.append((self._enqueued.submitted, destroy))

    def collect(self) -> None:
        """Destroy what was retired and is no longer in use."""
        with self.lock:
            reached = self._enqueued.reached() if self._retired else 0
            while self._retired and self._retired[0][0] <= reached:
                self._retired.popleft()[1]()

    def settled(self, memory: int = 0) -> int:
        """Bytes in use, once what was given back is gone: as if there were so much ``memory``, if it isn't 0."""
        with self.lock:
            if self._retired:
                self._enqueued.drain()
                self.collect()
            return int(self.memory.used)


class Ring:
    """Room of ``nbytes`` that writes go through, one after the other. ``drain`` waits for those that are on their way."""

    def __init__(self, nbytes: int, drain: Callable[[], None]) -> None:
        self.nbytes = nbytes
        self._drain = drain
        self._head = 0

    def pieces(self, data: memoryview) -> Iterator[tuple[int, memoryview]]:
        """Parts of the data that have room, each with its place in it: two on their way at once."""
        for first in range(0, len(data), self.nbytes // 2):
            yield first, data[first : first + self.nbytes // 2]

    def take(self, nbytes: int) -> int:
        """Where so many bytes may be written."""
        aligned = -(-nbytes // 256) * 256
        if self._head + aligned > self.nbytes:
            self._drain()
            self._head = 0
        self._head += aligned
        return self._head - aligned
