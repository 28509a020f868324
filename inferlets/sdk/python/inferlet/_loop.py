"""asyncio's event loop over the host's one waiting call.

Everything outside of the guest is a *ticket*: a request that was handed to the host and will be answered through ``wait``.
The loop collects what tasks submit, and calls the host when no task can run any more, so a step of a program is one host
call. Timers are the call's timeout.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from typing import Any

from inferlet import _streams
from inferlet._host import Outcome, Request, host
from inferlet.errors import PieError

_ROUNDS_BETWEEN_POLLS = 32  # a program that never runs out of ready tasks still learns what is complete


_numbers = itertools.count()  # of all loops: a program may run one after the other


class StuckError(Exception):
    """Every task waits, and for nothing that the host could answer."""


class Loop(asyncio.BaseEventLoop):
    """One per ``run``. ``BaseEventLoop`` brings tasks, futures, timers and exception handling."""

    def __init__(self) -> None:
        super().__init__()
        self._submissions: list[tuple[int, Request]] = []
        self._tickets: dict[int, asyncio.Future[Outcome]] = {}
        self._rounds = 0

    def submit(self, request: Request) -> asyncio.Future[Any]:
        """Hands a request to the host, in order, at the latest when this program next waits."""
        return self.submit_named(request)[1]

    def submit_named(self, request: Request) -> tuple[int, asyncio.Future[Any]]:
        """As ``submit``; and the ticket, by which other requests can name this one as long as it is outstanding."""
        ticket = next(_numbers) & 0xFFFF_FFFF
        future: asyncio.Future[Any] = self.create_future()
        self._tickets[ticket] = future
        self._submissions.append((ticket, request))
        return ticket, future

    async def submit_alone(self, request: Request) -> Any:
        """As ``submit``, for a request that the host may break off when whoever waits for it here is cancelled."""
        ticket, future = self.submit_named(request)
        try:
            return await future
        except asyncio.CancelledError:
            if any(ticket == waiting for waiting, _ in self._submissions):
                self._submissions = [other for other in self._submissions if other[0] != ticket]
            elif ticket in self._tickets:
                host().give_up(ticket)
            self._tickets.pop(ticket, None)
            raise

    def is_outstanding(self, ticket: int) -> bool:
        """Whether the host hasn't answered the request yet."""
        return ticket in self._tickets

    def flush(self) -> None:
        """Hands over what was submitted now: a call that changes state mustn't overtake it."""
        if self._submissions:
            self._exchange(0)

    def _exchange(self, timeout: int | None) -> None:
        _streams.flush()
        submissions, self._submissions = self._submissions, []
        for ticket, outcome in host().wait(submissions, timeout):
            future = self._tickets.pop(ticket, None)
            if future is None or future.done():
                continue
            if isinstance(outcome, PieError):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

    def _run_once(self) -> None:
        """One turn: wait if there is nothing to run, then run what is ready."""
        timers, ready = self._scheduled, self._ready
        while timers and timers[0]._cancelled:
            heapq.heappop(timers)._scheduled = False
            self._timer_cancelled_count -= 1
        self._rounds += 1
        if not ready:
            self._exchange(self._timeout())
        elif self._rounds % _ROUNDS_BETWEEN_POLLS == 0 and self._tickets:
            self._exchange(0)
        if timers:
            now = self.time() + self._clock_resolution
            while timers and timers[0]._when < now:
                timer = heapq.heappop(timers)
                timer._scheduled = False
                if not timer._cancelled:
                    ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def _timeout(self) -> int | None:
        """Nanoseconds until the next timer."""
        if self._stopping:
            return 0
        if self._scheduled:
            return max(0, int((self._scheduled[0]._when - time.monotonic()) * 1e9))
        if not self._tickets:
            raise StuckError
        return None

    # What BaseEventLoop leaves to its subclasses, for sockets that there are none of.

    def _process_events(self, event_list: Any) -> None: ...

    def _write_to_self(self) -> None: ...


def current() -> Loop:
    """The loop this code runs in."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, Loop)
    return loop


def running() -> Loop | None:
    """As ``current``, or None outside of any: plain functions may call the host as well."""
    loop = asyncio._get_running_loop()
    return loop if isinstance(loop, Loop) else None
