"""Pieces of states on their way to the host."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence


def pieces(data: memoryview, sizes: Sequence[int], multiple: int = 1) -> dict[str, memoryview]:
    """By number, copied: one after the other, each beginning at a multiple of so many bytes."""
    found, at = {}, 0
    for number, nbytes in enumerate(sizes):
        found[str(number)] = memoryview(bytes(data[at : at + nbytes]))
        at += -(-nbytes // multiple) * multiple
    return found


class Download:
    """There when the timeline reaches ``value``: in ``room``, memory that the device writes, which is given back with it."""

    def __init__(self, value: int, sizes: Sequence[int], room: memoryview, give_back: Callable[[], None]) -> None:
        self.value = value
        self._sizes = sizes
        self._room = room
        weakref.finalize(self, give_back).atexit = False

    def outputs(self) -> dict[str, memoryview]:
        """The pieces, once it is done."""
        return pieces(self._room, self._sizes)
