"""Device memory: buffers within a limit that is checked before the first byte moves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from pie_edge.backends.shared import region as shared
from pie_edge.backends.shared.memory import BaseMemory
from pie_edge.backends.wgpu.api import Handle, translated, wgpu
from pie_edge.backends.wgpu.device import Facts

_USAGE = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.UNIFORM | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
_READBACK = wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST


@dataclass(eq=False, frozen=True, slots=True)
class Buffer:
    """A GPUBuffer: zeroed when it is made."""

    handle: Handle
    label: str
    nbytes: int

    def region(self, offset: int = 0, nbytes: int | None = None) -> Region:
        return shared.Region(self, offset, self.nbytes - offset if nbytes is None else nbytes)


Region: TypeAlias = shared.Region[Buffer]


class Memory(BaseMemory):
    """No buffer is larger than ``largest``."""

    def __init__(self, device: Handle, facts: Facts, limit: int) -> None:
        super().__init__(facts.name, limit, facts.memory, 16)
        self._device = device
        self._largest = facts.max_buffer

    def buffer(self, nbytes: int, label: str, *, readback: bool = False) -> Buffer:
        """Raises OutOfMemory: what was asked, what is free."""
        nbytes = self._within(nbytes, label)
        if nbytes > self._largest:
            raise self._out_of_memory(nbytes, label, f"no buffer has more than {self._largest / 2**20:.0f}")
        with translated(f"allocate {nbytes} bytes for {label}"):
            handle = self._device.create_buffer(label=label, size=nbytes, usage=_READBACK if readback else _USAGE)
        self.used += nbytes
        return Buffer(handle, label, nbytes)

    def free(self, buffer: Buffer) -> None:
        """Its memory comes back once the device is done with what was submitted."""
        buffer.handle.destroy()
        self.used -= buffer.nbytes
