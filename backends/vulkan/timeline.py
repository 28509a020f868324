"""The queue and its timeline: what is enqueued gets the next number, and the device counts up to it when it is done."""

from __future__ import annotations

from threading import Lock

from pie_edge.backends.vulkan.api import Handle, check, ffi, lib, make, vk
from pie_edge.backends.vulkan.device import Gpu
from pie_edge.errors import BackendError, DeviceLost

_FOREVER = 0xFFFFFFFFFFFFFFFF
_TIMEOUT = 2
_MOST_HELD = 16
"""Command buffers that one submit takes."""


class Timeline:
    """Command buffers in order. Those that are held back go with the next that isn't, in one submit: a step's model pass and its
    epilogue cost one call. Structures are made once."""

    def __init__(self, gpu: Gpu) -> None:
        self.submitted = 0
        """The number of the last command buffer, those that are held back included."""
        self._gpu = gpu
        self._held = 0
        self._known = 0
        """A number that is known to be reached."""
        self._lock = Lock()
        self._broken: BackendError | None = None
        kind = vk.VkSemaphoreTypeCreateInfo(semaphoreType=vk.VK_SEMAPHORE_TYPE_TIMELINE, initialValue=0)
        info = vk.VkSemaphoreCreateInfo(pNext=kind)
        self._semaphore = make(
            "make a timeline", lib.vkCreateSemaphore, "VkSemaphore", gpu.device, ffi.addressof(info), ffi.NULL
        )
        self._handle = ffi.new("VkSemaphore[1]", [self._semaphore])
        self._value = ffi.new("uint64_t[1]")
        self._reached = ffi.new("uint64_t[1]")
        self._buffers = ffi.new(f"VkCommandBuffer[{_MOST_HELD}]")
        self._signal = ffi.new("VkTimelineSemaphoreSubmitInfo*")
        self._signal.sType = vk.VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO
        self._signal.signalSemaphoreValueCount = 1
        self._signal.pSignalSemaphoreValues = self._value
        self._submit = ffi.new("VkSubmitInfo*")
        self._submit.sType = vk.VK_STRUCTURE_TYPE_SUBMIT_INFO
        self._submit.pNext = self._signal
        self._submit.pCommandBuffers = self._buffers
        self._submit.signalSemaphoreCount = 1
        self._submit.pSignalSemaphores = self._handle

    def submit(self, commands: Handle, *, hold: bool = False) -> int:
        """Enqueue a command buffer; the number that the timeline reaches when it is done. With ``hold`` it may wait for the next
        one, or for whoever looks. Raises DeviceLost."""
        with self._lock:
            self._buffers[self._held] = commands
            self._held += 1
            self.submitted += 1
            if not hold or self._held == _MOST_HELD:
                self._flush()
            return self.submitted

    def is_reached(self, value: int) -> bool:
        """Whether it is done, as far as one sees without a submit; asks the driver only if it must. Raises DeviceLost."""
        return value <= self._known or value <= self._look()

    def reached(self) -> int:
        """The last number that is done, as are all before it. Raises DeviceLost."""
        self._send_held()
        return self._look()

    def wait(self, value: int, nanoseconds: int = _FOREVER) -> bool:
        """Block until ``value`` is reached, or the time is over: whether it was reached. For threads that may block."""
        self._send_held()
        value_given = ffi.new("uint64_t[1]", [value])
        info = ffi.new("VkSemaphoreWaitInfo*")
        info.sType = vk.VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO
        info.semaphoreCount, info.pSemaphores, info.pValues = 1, self._handle, value_given
        status = check(lib.vkWaitSemaphores(self._gpu.device, info, nanoseconds), "wait for a step")
        return status != _TIMEOUT

    def drain(self) -> None:
        """Wait until everything that was enqueued is done."""
        self.wait(self.submitted)

    def close(self) -> None:
        lib.vkDestroySemaphore(self._gpu.device, self._semaphore, ffi.NULL)

    def _look(self) -> int:
        check(lib.vkGetSemaphoreCounterValue(self._gpu.device, self._semaphore, self._reached), "look at its timeline")
        self._known = int(self._reached[0])
        return self._known

    def _send_held(self) -> None:
        if self._held or self._broken:
            with self._lock:
                self._flush()

    def _flush(self) -> None:
        """With the lock. A submit that fails takes all that follows with it: numbers were given out that are never reached."""
        if self._broken is None and self._held:
            self._submit.commandBufferCount, self._held = self._held, 0
            self._value[0] = self.submitted
            try:
                check(lib.vkQueueSubmit(self._gpu.queue, 1, self._submit, ffi.NULL), "run a step")
            except BackendError as error:
                self._broken = error
        if self._broken is not None:
            raise DeviceLost(str(self._broken)) from self._broken
