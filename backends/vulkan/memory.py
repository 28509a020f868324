"""Device memory: buffers of three kinds, a budget, and regions of buffers that kernels are bound to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from pie_edge.backends.shared import region as shared
from pie_edge.backends.shared.memory import BaseMemory
from pie_edge.backends.vulkan.api import Handle, check, ffi, lib, make, vk
from pie_edge.backends.vulkan.device import Gpu
from pie_edge.errors import BackendError, OutOfMemory

_DEVICE_LOCAL, _VISIBLE, _COHERENT, _CACHED = 1, 2, 4, 8
_USAGE = 0x1 | 0x2 | 0x20 | 0x100 | 0x4
"""Transfer source and target, storage, indirect, texels."""


class Kind(Enum):
    """What a buffer is for: sets of memory properties, the first that the device has is taken."""

    DEVICE = (_DEVICE_LOCAL, 0)
    """Kernels read and write it."""
    SHARED = (_DEVICE_LOCAL | _VISIBLE | _COHERENT, _VISIBLE | _COHERENT)
    """Kernels read and write it, and the host writes it while it loads: memory that host and device share."""
    UPLOAD = (_VISIBLE | _COHERENT,)
    """The host writes it, the device copies from it."""
    READBACK = (_VISIBLE | _COHERENT | _CACHED, _VISIBLE | _COHERENT)
    """The device copies into it, the host reads it."""


@dataclass(eq=False, frozen=True, slots=True)
class Buffer:
    """A VkBuffer with memory of its own. ``mapped`` is its memory as the host sees it, if it does."""

    handle: Handle
    memory: Handle
    nbytes: int
    mapped: memoryview | None

    def region(self, offset: int = 0, nbytes: int | None = None) -> Region:
        return shared.Region(self, offset, self.nbytes - offset if nbytes is None else nbytes)


Region: TypeAlias = shared.Region[Buffer]


class Memory(BaseMemory):
    def __init__(self, gpu: Gpu, limit: int) -> None:
        super().__init__(gpu.facts.name, limit, gpu.facts.memory, _smallest(gpu))
        self._gpu = gpu

    def buffer(self, nbytes: int, kind: Kind, what: str) -> Buffer:
        """A buffer of at least one word; its content is undefined. Raises OutOfMemory: what was asked, what is free."""
        nbytes = self._within(nbytes, what)
        info = vk.VkBufferCreateInfo(size=nbytes, usage=_USAGE)
        handle = make(
            f"make a buffer for {what}", lib.vkCreateBuffer, "VkBuffer", self._gpu.device, ffi.addressof(info), ffi.NULL
        )
        try:
            memory, visible = self._bind(handle, kind, what)
        except BaseException as error:
            lib.vkDestroyBuffer(self._gpu.device, handle, ffi.NULL)
            if isinstance(error, OutOfMemory):
                raise self._out_of_memory(
                    nbytes, what, "its driver gives no more: other programs use it, too"
                ) from None
            raise
        mapped = self._map(memory, nbytes) if visible and kind is not Kind.DEVICE else None
        self.used += nbytes
        return Buffer(handle, memory, nbytes, mapped)

    def free(self, buffer: Buffer) -> None:
        """Give a buffer back. Nothing that was submitted may still use it."""
        lib.vkDestroyBuffer(self._gpu.device, buffer.handle, ffi.NULL)
        lib.vkFreeMemory(self._gpu.device, buffer.memory, ffi.NULL)
        self.used -= buffer.nbytes

    def _bind(self, handle: Handle, kind: Kind, what: str) -> tuple[Handle, bool]:
        needs = ffi.new("VkMemoryRequirements*")
        lib.vkGetBufferMemoryRequirements(self._gpu.device, handle, needs)
        index, flags = self._type(needs.memoryTypeBits, kind)
        info = vk.VkMemoryAllocateInfo(allocationSize=needs.size, memoryTypeIndex=index)
        memory = make(
            f"allocate {needs.size} bytes for {what}",
            lib.vkAllocateMemory,
            "VkDeviceMemory",
            self._gpu.device,
            ffi.addressof(info),
            ffi.NULL,
        )
        check(lib.vkBindBufferMemory(self._gpu.device, handle, memory, 0), f"bind memory for {what}")
        return memory, bool(flags & _VISIBLE)

    def _type(self, allowed: int, kind: Kind) -> tuple[int, int]:
        types = self._gpu.memory.memoryTypes
        for wanted in kind.value:
            for index in range(self._gpu.memory.memoryTypeCount):
                flags = types[index].propertyFlags
                if allowed >> index & 1 and flags & wanted == wanted:
                    return index, flags
        raise BackendError(f"{self._gpu.facts.name} has no memory for {kind.name.lower()} buffers; update its driver")

    def _map(self, memory: Handle, nbytes: int) -> memoryview:
        pointer = ffi.new("void**")
        check(lib.vkMapMemory(self._gpu.device, memory, 0, 0xFFFFFFFFFFFFFFFF, 0, pointer), "map memory")
        return memoryview(ffi.buffer(pointer[0], nbytes))


def _smallest(gpu: Gpu) -> int:
    """Bytes of the least piece of memory that the driver gives a buffer."""
    info = vk.VkBufferCreateInfo(size=16, usage=_USAGE)
    handle = make("make a buffer", lib.vkCreateBuffer, "VkBuffer", gpu.device, ffi.addressof(info), ffi.NULL)
    needs = ffi.new("VkMemoryRequirements*")
    lib.vkGetBufferMemoryRequirements(gpu.device, handle, needs)
    lib.vkDestroyBuffer(gpu.device, handle, ffi.NULL)
    return int(max(needs.size, needs.alignment, 16))
