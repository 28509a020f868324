"""The queue and its timeline: a submission gets the next number, and the device counts up to it when it is done."""

from __future__ import annotations

from pie_edge.backends.vulkan.api import Handle, check, ffi, lib, make, vk
from pie_edge.backends.vulkan.device import Gpu

_FOREVER = 0xFFFFFFFFFFFFFFFF
_TIMEOUT = 2


class Timeline:
    """Submissions in order. Structures are made once: a submit costs one call."""

    def __init__(self, gpu: Gpu) -> None:
        self.submitted = 0
        self._gpu = gpu
        kind = vk.VkSemaphoreTypeCreateInfo(semaphoreType=vk.VK_SEMAPHORE_TYPE_TIMELINE, initialValue=0)
        info = vk.VkSemaphoreCreateInfo(pNext=kind)
        self._semaphore = make(
            "make a timeline", lib.vkCreateSemaphore, "VkSemaphore", gpu.device, ffi.addressof(info), ffi.NULL
        )
        self._handle = ffi.new("VkSemaphore[1]", [self._semaphore])
        self._value = ffi.new("uint64_t[1]")
        self._reached = ffi.new("uint64_t[1]")
        self._buffers = ffi.new("VkCommandBuffer[1]")
        self._signal = ffi.new("VkTimelineSemaphoreSubmitInfo*")
        self._signal.sType = vk.VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO
        self._signal.signalSemaphoreValueCount = 1
        self._signal.pSignalSemaphoreValues = self._value
        self._submit = ffi.new("VkSubmitInfo*")
        self._submit.sType = vk.VK_STRUCTURE_TYPE_SUBMIT_INFO
        self._submit.pNext = self._signal
        self._submit.commandBufferCount = 1
        self._submit.pCommandBuffers = self._buffers
        self._submit.signalSemaphoreCount = 1
        self._submit.pSignalSemaphores = self._handle

    def submit(self, commands: Handle) -> int:
        """Enqueue a command buffer; the number that the timeline reaches when it is done. Raises DeviceLost."""
        self._buffers[0] = commands
        self._value[0] = self.submitted + 1
        check(lib.vkQueueSubmit(self._gpu.queue, 1, self._submit, ffi.NULL), "run a step")
        self.submitted += 1
        return self.submitted

    def reached(self) -> int:
        """The last submission that is done, as are all before it. Raises DeviceLost."""
        check(lib.vkGetSemaphoreCounterValue(self._gpu.device, self._semaphore, self._reached), "look at its timeline")
        return int(self._reached[0])

    def wait(self, value: int, nanoseconds: int = _FOREVER) -> bool:
        """Block until ``value`` is reached, or the time is over: whether it was reached. For threads that may block."""
        value_given = ffi.new("uint64_t[1]", [value])
        info = ffi.new("VkSemaphoreWaitInfo*")
        info.sType = vk.VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO
        info.semaphoreCount, info.pSemaphores, info.pValues = 1, self._handle, value_given
        status = check(lib.vkWaitSemaphores(self._gpu.device, info, nanoseconds), "wait for a step")
        return status != _TIMEOUT

    def drain(self) -> None:
        """Wait until everything that was submitted is done."""
        self.wait(self.submitted)

    def close(self) -> None:
        lib.vkDestroySemaphore(self._gpu.device, self._semaphore, ffi.NULL)
