"""Pinned memory that downloads go to, used again: pinning and giving back may wait for all that runs, which would undo having two
steps in flight."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from pie_edge.backends.cuda.memory import Pinned

_SMALLEST, LARGEST = 4 << 10, 4 << 20
"""Bytes of a room that is kept: pages that are parked or written to a file are more, and rare."""
MOST = 16
"""Rooms that wait to be taken again, before another size takes the place of the one that waits longest."""


class Rooms:
    """``give_back`` may be called by whichever thread collects garbage, in the middle of ``take``; ``take`` by one at a time."""

    def __init__(
        self,
        pin: Callable[[int, str], Pinned],
        unpin: Callable[[Pinned], None],
        is_reached: Callable[[int], bool],
    ) -> None:
        self._pin = pin
        self._unpin = unpin
        self._is_reached = is_reached
        self._spare: deque[tuple[int, Pinned]] = deque()
        """And the timeline's number of what still writes there."""

    def take(self, nbytes: int) -> Pinned:
        """At least so many bytes. Raises OutOfMemory."""
        if nbytes > LARGEST:
            return self._pin(nbytes, "a download")
        wanted = max(1 << max(nbytes - 1, 0).bit_length(), _SMALLEST)
        for _ in range(len(self._spare)):
            value, room = self._spare.popleft()
            if len(room.view) == wanted and self._is_reached(value):
                return room
            self._spare.append((value, room))
        if len(self._spare) >= MOST:
            self._unpin(self._spare.popleft()[1])
        return self._pin(wanted, "downloads")

    def give_back(self, room: Pinned, value: int) -> None:
        """Nobody reads it any more; the device may write there until the timeline reaches the number."""
        if len(room.view) > LARGEST:
            self._unpin(room)
        else:
            self._spare.append((value, room))
