"""Device memory: buffers within a limit that is checked before the first byte moves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from pie_edge.backends.shared import region as shared
from pie_edge.backends.wgpu.api import Handle, translated, wgpu
from pie_edge.errors import OutOfMemory

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


class Memory:
    """Makes buffers within ``limit`` bytes in all; none is larger than ``largest``."""

    def __init__(self, device: Handle, name: str, limit: int, largest: int) -> None:
        self.limit = limit
        self.used = 0
        self._device = device
        self._name = name
        self._largest = largest

    def buffer(self, nbytes: int, label: str, *, readback: bool = False) -> Buffer:
        """Raises OutOfMemory: what was asked, what is free."""
        nbytes = self.rounded(nbytes)
        if self.used + nbytes > self.limit or nbytes > self._largest:
            raise self._out_of_memory(nbytes, label)
        with translated(f"allocate {nbytes} bytes for {label}"):
            handle = self._device.create_buffer(label=label, size=nbytes, usage=_READBACK if readback else _USAGE)
        self.used += nbytes
        return Buffer(handle, label, nbytes)

    @staticmethod
    def rounded(nbytes: int) -> int:
        return max(-(-nbytes // 16) * 16, 16)

    def free(self, buffer: Buffer) -> None:
        """Its memory comes back once the device is done with what was submitted."""
        buffer.handle.destroy()
        self.used -= buffer.nbytes

    def _out_of_memory(self, nbytes: int, label: str) -> OutOfMemory:
        return OutOfMemory(
            f"{label} needs {nbytes / 2**20:.1f} MiB of {self._name}; {(self.limit - self.used) / 2**20:.1f} of "
            f"{self.limit / 2**20:.1f} MiB are free, and no buffer has more than {self._largest / 2**20:.0f}. Lower "
            "`kv_memory`, raise `memory` in the configuration, or take a smaller model"
        )
