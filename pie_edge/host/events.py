"""An inferlet's outstanding requests, and the one call in which it waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from pie_edge.errors import InferletCancelled, InvalidHandle, PieError, ResourceError
from pie_edge.host.requests import Begun, told

Completion = tuple[int, Any]
"""``(ticket, outcome)``: a value of the WIT variant, or a ``PieError``."""

_MOST_OUTSTANDING = 10_000


class Events:
    """Requests of one guest, which ``begin(ticket, kind, payload)`` starts. ``wake`` is called when a guest that sleeps in
    ``wait`` can go on, ``forget`` when it has taken what became of a ticket."""

    def __init__(
        self, begin: Callable[[int, str, Any], Begun], wake: Callable[[], None], forget: Callable[[int], None]
    ) -> None:
        self._begin = begin
        self._wake = wake
        self._forget = forget
        self._outstanding: dict[int, asyncio.Future[Any]] = {}
        self._fetches: set[int] = set()
        """Those that are broken off when they are given up."""
        self._complete: list[Completion] = []
        self._sleep: _Sleep | None = None

    def wait(self, submissions: list[tuple[int, tuple[str, Any]]], timeout: int | None) -> list[Completion] | _Sleep:
        """What is complete, or the sleep after which something is. ``timeout`` is nanoseconds."""
        for ticket, (kind, payload) in submissions:
            self._start(ticket, kind, payload)
        if self._complete or timeout == 0:
            return self.take()
        self._sleep = _Sleep(self, timeout)
        return self._sleep

    def take(self) -> list[Completion]:
        complete, self._complete = self._complete, []
        for ticket, _ in complete:
            self._forget(ticket)
        return complete

    def rouse(self) -> None:
        """Ends the sleep, if the guest is in one."""
        sleep, self._sleep = self._sleep, None
        if sleep is not None:
            sleep.end()
            self._wake()

    def give_up(self, ticket: int) -> None:
        """Nobody waits for this request any more."""
        future = self._outstanding.pop(ticket, None)
        if future is None:
            return
        self._forget(ticket)
        if ticket in self._fetches:
            future.cancel()

    def close(self) -> None:
        """Nobody waits any more."""
        outstanding, self._outstanding = self._outstanding, {}
        for future in outstanding.values():
            future.cancel()
        self._complete = []
        self._sleep = None

    def _start(self, ticket: int, kind: str, payload: Any) -> None:
        try:
            self._check(ticket)
            future, present = self._begin(ticket, kind, payload)
        except PieError as error:
            self._complete.append((ticket, error))
            return
        self._outstanding[ticket] = future
        if kind == "fetch":
            self._fetches.add(ticket)
        future.add_done_callback(lambda done: self._arrived(ticket, done, present))

    def _check(self, ticket: int) -> None:
        if ticket in self._outstanding:
            raise InvalidHandle(f"ticket {ticket} is in use; give every outstanding request another one")
        if len(self._outstanding) >= _MOST_OUTSTANDING:
            raise ResourceError(f"{_MOST_OUTSTANDING:,} requests are outstanding; wait for some before making more")

    def _arrived(self, ticket: int, future: asyncio.Future[Any], present: Callable[[Any], Any]) -> None:
        self._fetches.discard(ticket)
        if self._outstanding.pop(ticket, None) is None:
            if not future.cancelled():
                future.exception()  # it was looked at: the guest has gone
            return
        self._complete.append((ticket, _outcome(future, present)))
        self.rouse()


class _Sleep:
    """A guest inside ``wait``."""

    def __init__(self, events: Events, timeout: int | None) -> None:
        self._events = events
        self._over = False
        self._timer = None
        if timeout is not None:
            self._timer = asyncio.get_running_loop().call_later(timeout / 1e9, events.rouse)

    def end(self) -> None:
        self._over = True
        if self._timer is not None:
            self._timer.cancel()

    def done(self) -> bool:
        return self._over

    def result(self) -> list[Completion]:
        return self._events.take()

    def cancel(self) -> None:
        self.end()


def _outcome(future: asyncio.Future[Any], present: Callable[[Any], Any]) -> Any:
    if future.cancelled():
        return InferletCancelled("the request was cancelled")
    error = future.exception()
    if error is not None:
        return told(error)
    try:
        return present(future.result())
    except PieError as refused:
        return refused
