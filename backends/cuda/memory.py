"""Device memory within a limit that is checked before the first byte moves, and the host's pinned memory."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_uint64, c_void_p
from dataclasses import dataclass
from typing import TypeAlias

from pie_edge.backends.cuda import numa
from pie_edge.backends.cuda.device import Gpu
from pie_edge.backends.shared import region as shared
from pie_edge.backends.shared.memory import BaseMemory, mib
from pie_edge.errors import OutOfMemory

_GRANULE = 512
_LARGE, _PAGE = 1 << 20, 2 << 20
"""From so many bytes on the driver gives whole pages, of this size."""


@dataclass(eq=False, frozen=True, slots=True)
class Buffer:
    """Device memory at an address of its own."""

    address: int
    nbytes: int

    def region(self, offset: int = 0, nbytes: int | None = None) -> Region:
        return shared.Region(self, offset, self.nbytes - offset if nbytes is None else nbytes)


Region: TypeAlias = shared.Region[Buffer]


@dataclass(eq=False, frozen=True, slots=True)
class Pinned:
    """Host memory that the device copies from and to on its own; ``view`` is its bytes."""

    address: int
    view: memoryview


class Memory(BaseMemory):
    def __init__(self, gpu: Gpu, limit: int) -> None:
        super().__init__(gpu.facts.name, limit, gpu.facts.memory, _GRANULE)
        self._gpu = gpu
        self._near = numa.near(gpu.bus)

    def rounded(self, nbytes: int) -> int:
        nbytes = super().rounded(nbytes)
        return nbytes if nbytes < _LARGE else -(-nbytes // _PAGE) * _PAGE

    def buffer(self, nbytes: int, what: str) -> Buffer:
        """Its content is undefined. Raises OutOfMemory: what was asked, what is free."""
        taken, address = self._within(nbytes, what), c_uint64()
        # No more than the granule: what is written past it is a fault that the emulator sees.
        nbytes = super().rounded(nbytes)
        try:
            self._gpu.call(f"allocate {nbytes} bytes for {what}", "cuMemAlloc_v2", byref(address), nbytes)
        except OutOfMemory:
            left = f"the card has {mib(self._gpu.free_memory())} MiB left: another process may use it"
            raise self._out_of_memory(taken, what, left) from None
        self.used += taken
        return Buffer(address.value, nbytes)

    def free(self, buffer: Buffer) -> None:
        """Nothing that was enqueued may still use it."""
        self._gpu.enter()
        self._gpu.raw("cuMemFree_v2")(buffer.address)
        self.used -= self.rounded(buffer.nbytes)

    def pinned(self, nbytes: int, what: str) -> Pinned:
        """Raises OutOfMemory: this is the machine's memory, not the card's."""
        try:
            with self._near.preferred():
                place = self._gpu.made(f"pin {nbytes} bytes for {what}", "cuMemHostAlloc", nbytes, 0)
        except OutOfMemory:
            raise OutOfMemory(
                f"{what} needs {mib(nbytes)} MiB of the machine's own memory, pinned, and the system has none to give; end other "
                "processes, or raise what this one may lock (`ulimit -l`, a container's limit)"
            ) from None
        assert place.value is not None
        room = (ctypes.c_char * nbytes).from_address(place.value)
        return Pinned(place.value, memoryview(room).cast("B"))

    def unpin(self, pinned: Pinned) -> None:
        self._gpu.enter()
        self._gpu.raw("cuMemFreeHost")(c_void_p(pinned.address))
