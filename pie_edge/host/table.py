"""What a guest holds by number: decoders, queues, subscriptions, responses, children."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from pie_edge.errors import InvalidHandle, ResourceError

T = TypeVar("T")


class Table(Generic[T]):
    """Numbers count up from 1 and are never used again, so a stale one is always noticed."""

    def __init__(self, owner: str, what: str, most: int) -> None:
        self._owner = owner
        self._what = what
        self._most = most
        self._things: dict[int, T] = {}
        self._last = 0

    def __iter__(self) -> Iterator[T]:
        return iter(list(self._things.values()))

    def check_room(self) -> None:
        """Raises ResourceError if it is full."""
        if len(self._things) >= self._most:
            raise ResourceError(f"{self._owner} has {self._most:,} {self._what}s; drop some before making more")

    def add(self, thing: T) -> int:
        self.check_room()
        self._last += 1
        self._things[self._last] = thing
        return self._last

    def find(self, number: int) -> T:
        if number not in self._things:
            raise InvalidHandle(f"{self._owner} has no {self._what} {number}; it was dropped or never made")
        return self._things[number]

    def drop(self, number: int) -> T | None:
        return self._things.pop(number, None)

    def clear(self) -> None:
        self._things.clear()
