"""Content of pages in host memory, and beyond a limit on disk."""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol


class Spill(Protocol):
    """Where parked content goes that host memory has no room for. A browser has none."""

    def put(self, handle: int, content: bytes) -> None: ...

    def get(self, handle: int) -> bytes: ...

    def drop(self, handle: int) -> None: ...

    def close(self) -> None:
        """Let go of everything."""


class Parking:
    """``limit`` bytes in memory; the longest parked content is spilled first."""

    def __init__(self, limit: int, spill: Spill | None = None) -> None:
        self.nbytes = 0
        self.spilled = 0
        self._limit = limit
        self._spill = spill
        self._contents: OrderedDict[int, bytes] = OrderedDict()
        self._on_disk: set[int] = set()

    @property
    def full(self) -> bool:
        """Whether nothing more can be parked."""
        return self._spill is None and self.nbytes >= self._limit

    def put(self, handle: int, content: bytes) -> None:
        self._contents[handle] = content
        self.nbytes += len(content)
        while self._spill is not None and self.nbytes > self._limit and self._contents:
            oldest, moved = self._contents.popitem(last=False)
            self.nbytes -= len(moved)
            self._spill.put(oldest, moved)
            self._on_disk.add(oldest)
            self.spilled += 1

    def get(self, handle: int) -> bytes:
        if handle in self._on_disk and self._spill is not None:
            return self._spill.get(handle)
        return self._contents[handle]

    def drop(self, handle: int) -> None:
        if handle in self._on_disk and self._spill is not None:
            self._on_disk.remove(handle)
            self._spill.drop(handle)
        elif handle in self._contents:
            self.nbytes -= len(self._contents.pop(handle))

    def close(self) -> None:
        self._contents.clear()
        if self._spill is not None:
            self._spill.close()
