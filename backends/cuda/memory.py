"""Device memory within a limit that is checked before the first byte moves, and the host's pinned memory."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_uint64, c_void_p
from dataclasses import dataclass
from typing import TypeAlias

from pie_edge.backends.cuda import numa
from pie_edge.backends.cuda.device import Gpu
from pie_edge.backends.shared import region as shared
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


class Memory:
    """Makes buffers within ``limit`` bytes in all."""

    def __init__(self, gpu: Gpu, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._gpu = gpu
        self._near = numa.near(gpu.bus)

    @staticmethod
    def rounded(nbytes: int) -> int:
        return max(-(-nbytes // _GRANULE), 1) * _GRANULE

    def buffer(self, nbytes: int, what: str) -> Buffer:
        """Its content is undefined. Raises OutOfMemory: what was asked, what is free."""
        nbytes, address = self.rounded(nbytes), c_uint64()
        if self.used + nbytes > self.limit:
            raise self._out_of_memory(nbytes, what, "")
        try:
            self._gpu.call(f"allocate {nbytes} bytes for {what}", "cuMemAlloc_v2", byref(address), nbytes)
        except OutOfMemory:
            free = self._gpu.free_memory() / 2**20
            raise self._out_of_memory(
                nbytes, what, f", but the card has {free:.1f} MiB left: another process may use it"
            ) from None
        self.used += nbytes
        return Buffer(address.value, nbytes)

    def free(self, buffer: Buffer) -> None:
        """Nothing that was enqueued may still use it."""
        self._gpu.enter()
        self._gpu.raw("cuMemFree_v2")(buffer.address)
        self.used -= buffer.nbytes

    def pinned(self, nbytes: int, what: str) -> Pinned:
        with self._near:
            place = self._gpu.made(f"pin {nbytes} bytes for {what}", "cuMemHostAlloc", nbytes, 0)
        assert place.value is not None
        room = (ctypes.c_char * nbytes).from_address(place.value)
        return Pinned(place.value, memoryview(room).cast("B"))

    def unpin(self, pinned: Pinned) -> None:
        self._gpu.enter()
        self._gpu.raw("cuMemFreeHost")(c_void_p(pinned.address))

    def _out_of_memory(self, nbytes: int, what: str, more: str) -> OutOfMemory:
        return OutOfMemory(
            f"{what} needs {nbytes / 2**20:.1f} MiB of {self._gpu.facts.name}; {(self.limit - self.used) / 2**20:.1f} of "
            f"{self.limit / 2**20:.1f} MiB are free{more}. Lower `memory` or `kv_memory` in the configuration, or take a "
            "smaller model"
        )
