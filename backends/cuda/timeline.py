"""The stream and its timeline: what is enqueued gets the next number, and events say how far the device is."""

from __future__ import annotations

from collections import deque
from ctypes import c_void_p
from threading import RLock

from pie_edge.backends.cuda.api import NOT_READY
from pie_edge.backends.cuda.device import Gpu
from pie_edge.backends.shared.polling import Polled
from pie_edge.errors import BackendError, DeviceLost, OutOfMemory

_NON_BLOCKING, _NO_TIMING = 1, 2


class Timeline(Polled):
    look = 2e-5

    def __init__(self, gpu: Gpu) -> None:
        super().__init__()
        self.lock = RLock()
        """Held while things are enqueued: the loop's thread runs steps while a worker's loads and compiles."""
        self.submitted = 0
        self.stream: c_void_p = gpu.made("make a stream", "cuStreamCreate", _NON_BLOCKING)
        self._gpu = gpu
        self._query, self._record = gpu.raw("cuEventQuery"), gpu.raw("cuEventRecord")
        self._pending: deque[tuple[int, c_void_p]] = deque()
        self._spare: list[c_void_p] = []
        self._lost = ""

    def mark(self) -> int:
        """A number for what was enqueued: reached when that is done. Raises DeviceLost."""
        self._gpu.enter()
        with self.lock:
            event = self._spare.pop() if self._spare else self._new_event()
            self.checked(self._record(event, self.stream), "mark a step")
            self.submitted += 1
            self._pending.append((self.submitted, event))
            return self.submitted

    def checked(self, status: int, what: str) -> None:
        """Raises DeviceLost, also for whatever failed before; and OutOfMemory, after which the device is as it was."""
        if self._lost:
            raise DeviceLost(self._lost)
        if status:
            try:
                self._gpu.driver.refuse(status, what)
            except OutOfMemory as error:
                left = self._gpu.free_memory() / 2**20
                raise OutOfMemory(f"{error}; the card has {left:.1f} MiB left") from None
            except BackendError as error:
                self._lost = str(error)
                raise DeviceLost(self._lost) from error

    def reached(self) -> int:
        """The last number that is done, as are all before it. Raises DeviceLost."""
        if self._lost:
            raise DeviceLost(self._lost)
        if self._pending:
            self._gpu.enter()
            with self.lock:
                while self._pending:
                    value, event = self._pending[0]
                    status = self._query(event)
                    if status == NOT_READY:
                        break
                    self.checked(status, "run a step")
                    self._pending.popleft()
                    self._spare.append(event)
                    self._reached = value
        return self._reached

    def drain(self) -> None:
        """Block until everything that was enqueued is done: for threads that may."""
        self._gpu.enter()
        self.checked(self._gpu.raw("cuStreamSynchronize")(self.stream), "end what runs")
        self.reached()

    def close(self) -> None:
        self._gpu.enter()
        for event in (*self._spare, *(event for _, event in self._pending)):
            self._gpu.raw("cuEventDestroy_v2")(event)
        self._gpu.raw("cuStreamDestroy_v2")(self.stream)

    def _new_event(self) -> c_void_p:
        return self._gpu.made("make an event", "cuEventCreate", _NO_TIMING)
