"""Who has which part of linear memory: a free list, best fit, neighbours joined."""

from __future__ import annotations

from bisect import bisect_left, insort

ALIGNMENT = 64
"""A cache line: no two allocations share one."""


def rounded(nbytes: int) -> int:
    """Bytes that an allocation of so many takes."""
    return max(-(-nbytes // ALIGNMENT), 1) * ALIGNMENT


class Allocator:
    """Hands out ``[offset, offset + size)`` between ``start`` and ``end``. Knows nothing of the memory itself."""

    def __init__(self, start: int, end: int) -> None:
        self._top = -(-start // ALIGNMENT) * ALIGNMENT
        self._end = end // ALIGNMENT * ALIGNMENT
        self._free: list[tuple[int, int]] = []
        """Offset and size of holes below the top, by offset."""
        self._sizes: dict[int, int] = {}
        self.touched = self._top
        """No allocation ever reached beyond it."""

    @property
    def available(self) -> int:
        """Bytes free in all; a single allocation may find less in one piece."""
        return self._end - self._top + sum(size for _, size in self._free)

    def take(self, nbytes: int) -> int | None:
        """Where ``nbytes`` bytes begin, or None if no piece is large enough."""
        size = rounded(nbytes)
        fitting = [(hole, offset) for offset, hole in self._free if hole >= size]
        if fitting:
            hole, offset = min(fitting)
            self._free.remove((offset, hole))
            if hole > size:
                insort(self._free, (offset + size, hole - size))
        elif size <= self._end - self._top:
            offset, self._top = self._top, self._top + size
            self.touched = max(self.touched, self._top)
        else:
            return None
        self._sizes[offset] = size
        return offset

    def give_back(self, offset: int) -> None:
        size = self._sizes.pop(offset)
        at = bisect_left(self._free, (offset, 0))
        if at < len(self._free) and self._free[at][0] == offset + size:
            size += self._free.pop(at)[1]
        if at and sum(self._free[at - 1]) == offset:
            offset, before = self._free.pop(at - 1)
            size += before
        if offset + size == self._top:
            self._top = offset
        else:
            insort(self._free, (offset, size))
