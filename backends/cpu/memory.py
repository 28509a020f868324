"""The linear memory that all instances share, seen from the host."""

from __future__ import annotations

import ctypes
import sys
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from wasmtime import Engine, Limits, MemoryType, SharedMemory, WasmtimeError
from wasmtime import _ffi as ffi

from pie_edge.backends.cpu.allocator import Allocator
from pie_edge.errors import OutOfMemory

PAGE = 1 << 16
ADDRESSABLE = (1 << 32) - PAGE
"""Bytes that 32-bit addresses reach, less the page that the linker's limit leaves out."""

_STEP = 32 << 20


class _Memory(SharedMemory):
    def _as_extern(self) -> Any:
        # wasmtime-py 50.0.1 takes one pointer too many here.
        union = ffi.wasmtime_extern_union(sharedmemory=self.ptr())
        return ffi.wasmtime_extern_t(ffi.WASMTIME_EXTERN_SHAREDMEMORY, union)


@dataclass(eq=False, frozen=True, slots=True)
class Region:
    """A piece of linear memory: what the backend's buffers are."""

    offset: int
    nbytes: int


class LinearMemory:
    """Grows as it is used, up to ``limit`` bytes for what is allocated. Its address never changes."""

    def __init__(self, engine: Engine, minimum_pages: int, maximum_pages: int) -> None:
        self.shared = _Memory(engine, MemoryType(Limits(minimum_pages, maximum_pages), shared=True))
        self._address = ctypes.addressof(self.shared.data_ptr().contents)
        # As long as addresses go; what lies beyond the present size is never touched.
        self._bytes = memoryview((ctypes.c_ubyte * (1 << 32)).from_address(self._address)).cast("B")
        self._maximum = maximum_pages * PAGE
        _prefer_large_pages(self._address, self._maximum)
        self._lock = threading.Lock()
        self._allocator = Allocator(0, 0)
        self._regions: dict[int, Region] = {}
        self.limit = self._heap = 0

    def open(self, heap: int, limit: int) -> None:
        """Allocate from ``heap`` on, ``limit`` bytes at most."""
        self._heap = heap
        self.limit = min(limit, ADDRESSABLE - heap)
        self._allocator = Allocator(heap, heap + self.limit)

    @property
    def available(self) -> int:
        return self._allocator.available

    def allocate(self, nbytes: int, purpose: str) -> Region:
        """Zeroed. Raises OutOfMemory."""
        with self._lock:
            touched = self._allocator.touched
            offset = self._allocator.take(nbytes)
            if offset is None:
                raise OutOfMemory(self._shortfall(nbytes, purpose))
            try:
                self._grow(offset + nbytes)
            except WasmtimeError as error:
                self._allocator.give_back(offset)
                raise OutOfMemory(f"{self._shortfall(nbytes, purpose)} (the system gives no more: {error})") from error
            region = self._regions[offset] = Region(offset, nbytes)
        used = min(offset + nbytes, touched) - offset
        if used > 0:
            ctypes.memset(self._address + offset, 0, used)
        return region

    def free(self, region: Region) -> None:
        """Raises ValueError for a region that isn't allocated: by now its place may be another's."""
        with self._lock:
            if self._regions.get(region.offset) is not region:
                raise ValueError(f"{region} was freed before")
            del self._regions[region.offset]
            self._allocator.give_back(region.offset)

    def view(self, offset: int, nbytes: int) -> memoryview:
        """Those bytes themselves. Not to be kept after the backend is closed."""
        return self._bytes[offset : offset + nbytes]

    def array(self, offset: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        """The same as an array."""
        count = int(np.prod(shape, dtype=np.int64))
        return np.frombuffer(self.view(offset, count * dtype.itemsize), dtype).reshape(shape)

    def _grow(self, end: int) -> None:
        # A slack of one vector, since kernels may load past a value's end.
        have = self.shared.data_len()
        if end + 16 > have:
            # By whole large pages and then some: what isn't touched costs nothing.
            wanted = min(-(-(end + 16) // _STEP) * _STEP, self._maximum)
            self.shared.grow((wanted - have) // PAGE)

    def _shortfall(self, nbytes: int, purpose: str) -> str:
        most = " (its kernels address no more)" if self.limit >= ADDRESSABLE - self._heap else ""
        raised = "" if most else ", raise memory"
        return (
            f"{purpose} takes {_size(nbytes)}; the cpu backend has {_size(self.available)} left of {_size(self.limit)}{most}. "
            f"Lower kv_memory{raised} in the configuration, or take a smaller model"
        )


_MADV_HUGEPAGE = 14


def _prefer_large_pages(address: int, nbytes: int) -> None:
    """Ask Linux for 2 MiB pages: with 4 KiB ones every page of keys is another miss of the translation cache."""
    if sys.platform == "linux":
        # Advice: a kernel without such pages refuses, and all goes on as before.
        ctypes.CDLL(None).madvise(ctypes.c_void_p(address), ctypes.c_size_t(nbytes), _MADV_HUGEPAGE)


def _size(nbytes: int) -> str:
    return f"{nbytes / (1 << 20):.1f} MiB" if nbytes >= 1 << 20 else f"{nbytes} bytes"
