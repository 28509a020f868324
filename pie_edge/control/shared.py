"""Contexts that belong to no inferlet, by key: what one leaves for others to go on from."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Protocol

from pie_edge.control import pages
from pie_edge.control.pages import PagePool, WorkingSet


class Timer(Protocol):
    def cancel(self) -> None: ...


class Shared:
    """A context stays until it is removed. One that is *lent* for some seconds goes after these, or when somebody needs its
    pages: the one that wasn't found for the longest time first.

    ``later`` is ``call_later`` of an event loop.
    """

    def __init__(self, pool: PagePool, later: Callable[[float, Callable[[str], bool], str], Timer]) -> None:
        self.dropped = 0
        """How many lent ones have made room."""
        self._pool = pool
        self._later = later
        self._contexts: dict[str, WorkingSet] = {}
        self._lent: OrderedDict[str, Timer] = OrderedDict()

    def __len__(self) -> int:
        return len(self._contexts)

    def __contains__(self, key: str) -> bool:
        return key in self._contexts

    def clear(self) -> None:
        """Remove all."""
        for key in list(self._contexts):
            self.remove(key)

    def values(self) -> Iterable[WorkingSet]:
        return self._contexts.values()

    def add(self, key: str, context: WorkingSet, seconds: float | None) -> None:
        """The context is its own from now on."""
        self._contexts[key] = context
        if seconds is not None:
            self._lent[key] = self._later(seconds, self.remove, key)

    def find(self, key: str) -> WorkingSet | None:
        if key in self._lent:
            self._lent.move_to_end(key)
        return self._contexts.get(key)

    def remove(self, key: str) -> bool:
        """Whether there was anything."""
        found = self._contexts.pop(key, None)
        timer = self._lent.pop(key, None)
        if timer is not None:
            timer.cancel()
        if found is not None:
            pages.give_back(self._pool, found)
        return found is not None

    def make_room(self) -> bool:
        """Drop a lent one; whether there was any. Its pages are free, unless others hold them too."""
        if not self._lent:
            return False
        self.dropped += 1
        return self.remove(next(iter(self._lent)))

    def close(self) -> None:
        for timer in self._lent.values():
            timer.cancel()
        self._lent.clear()
