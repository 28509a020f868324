"""Device memory within a limit that is checked before the first byte moves, and the host's pinned memory."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_uint64, c_void_p
from dataclasses import dataclass
from typing import TypeAlias

from pie_edge.backends.cuda import numa
from pie_edge.backends.cuda.device import Gpu
from pie_edge.backends.shared import region as shared
from pie_edge.backends.shared.memory import BaseMemory
from pie_edge.errors import OutOfMemory

_GRANULE = 512


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

    def buffer(self, nbytes: int, what: str) -> Buffer:
        """Its content is undefined. Raises OutOfMemory: what was asked, what is free."""
        nbytes, address = self._within(nbytes, what), c_uint64()
        try:
            self._gpu.call(f"allocate {nbytes} bytes for {what}", "cuMemAlloc_v2", byref(address), nbytes)
        except OutOfMemory:
            free = self._gpu.free_memory() / 2**20
            left = f"the card has {free:.1f} MiB left: another process may use it"
            raise self._out_of_memory(nbytes, what, left) from None
        self.used += nbytes
        return Buffer(address.value, nbytes)

    def free(self, buffer: Buffer) -> None:
        """Nothing that was enqueued may still use it."""
        self._gpu.enter()
        self._gpu.raw("cuMemFree_v2")(buffer.address)
        self.used -= buffer.nbytes

    def pinned(self, nbytes: int, what: str) -> Pinned:
        with self._near.preferred():
            place = self._gpu.made(f"pin {nbytes} bytes for {what}", "cuMemHostAlloc", nbytes, 0)
        assert place.value is not None
        room = (ctypes.c_char * nbytes).from_address(place.value)
        return Pinned(place.value, memoryview(room).cast("B"))

    def unpin(self, pinned: Pinned) -> None:
        self._gpu.enter()
        self._gpu.raw("cuMemFreeHost")(c_void_p(pinned.address))
