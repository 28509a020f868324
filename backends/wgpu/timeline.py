"""The queue: command buffers in order, numbered, and which of them are done.

WebGPU has no numbers to look at: a callback after each submit says that everything so far is done, and it comes when the
device is polled. It is polled without waiting, for a wait inside wgpu would hold up whoever submits meanwhile.
"""

from __future__ import annotations

import time
import weakref
from threading import RLock
from typing import Any

from pie_edge.backends.shared.polling import Polled
from pie_edge.backends.wgpu.api import Handle, ffi, lib, libf, translated
from pie_edge.errors import BackendError, DeviceLost

_MOST_HELD = 16
"""Command buffers that one submit takes."""


class Timeline(Polled):
    look = 0.0002

    def __init__(self, device: Handle) -> None:
        super().__init__()
        self.submitted = 0
        """The number of the last command buffer, those that are held back included."""
        self.lost = ""
        """Why the device is lost, if it is."""
        self.lock = RLock()
        self.sent = 0
        """The number of the last one that isn't held back."""
        self._device = device
        self._queue = device.queue._internal
        self._held: list[Any] = []
        self._callback = _done_callback(weakref.ref(self))

    def submit(self, commands: Any, *, hold: bool = False) -> int:
        """Enqueue a command buffer; the number that is reached when it is done. With ``hold`` it may wait for the next one, or
        for whoever looks. Raises DeviceLost."""
        with self.lock:
            self._held.append(commands)
            self.submitted += 1
            if not hold or len(self._held) == _MOST_HELD:
                self.flush()
            return self.submitted

    def flush(self) -> None:
        """Send what is held back. A submit that fails takes all that follows with it."""
        with self.lock:
            if self.lost:
                raise DeviceLost(self.lost)
            if not self._held:
                return
            held, self._held = self._held, []
            try:
                with translated("run a step"):
                    libf.wgpuQueueSubmit(self._queue, len(held), ffi.new("WGPUCommandBuffer[]", held))
            except BackendError as error:
                self.lose(str(error))
                raise DeviceLost(self.lost) from error
            finally:
                for commands in held:
                    lib.wgpuCommandBufferRelease(commands)
            self.sent = self.submitted
            info = ffi.new("WGPUQueueWorkDoneCallbackInfo*")
            info.mode, info.callback = lib.WGPUCallbackMode_AllowProcessEvents, self._callback
            info.userdata1 = ffi.cast("void*", self.submitted)
            lib.wgpuQueueOnSubmittedWorkDone(self._queue, info[0])

    def reached(self) -> int:
        """The last number that is done, as are all before it. Raises DeviceLost."""
        self.flush()
        if self._reached < self.submitted:
            with translated("look at its queue"):
                libf.wgpuDevicePoll(self._device._internal, False, ffi.NULL)
        if self.lost:
            raise DeviceLost(self.lost)
        return self._reached

    def drain(self) -> None:
        """Block until everything that was enqueued is done: for threads that may."""
        self.flush()
        while not self.is_reached(self.submitted):
            time.sleep(self.look)

    def finish(self) -> None:
        """As ``drain``, inside wgpu and to the microsecond: where nobody else has this device. Raises DeviceLost."""
        self.flush()
        with translated("wait for a step"):
            libf.wgpuDevicePoll(self._device._internal, True, ffi.NULL)
        self.drain()

    def note(self, value: int, fine: bool) -> None:
        """What the callback says."""
        if fine:
            self._reached = max(self._reached, value)
        else:
            self.lose("the device was lost while steps ran; run the request again")

    def lose(self, why: str) -> None:
        self.lost = self.lost or why


def _done_callback(timeline: weakref.ref[Timeline]) -> Any:
    @ffi.callback("void(WGPUQueueWorkDoneStatus, WGPUStringView, void *, void *)")  # type: ignore[untyped-decorator]
    def done(status: int, message: Any, value: Any, unused: Any) -> None:
        found = timeline()
        if found is not None:
            found.note(int(ffi.cast("uintptr_t", value)), status == lib.WGPUQueueWorkDoneStatus_Success)

    return done
