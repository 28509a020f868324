"""Messages that come one by one, to tasks that may give up waiting: none is lost, whoever is cancelled."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from inferlet import _loop
from inferlet._requests import Request

T = TypeVar("T")


class Inbox(Generic[T]):
    """``ask`` makes the request for the next message. A ``receive`` that is cancelled (by ``asyncio.wait_for``, say) leaves its
    message, or its error, to the next one."""

    def __init__(self, ask: Callable[[], Request]) -> None:
        self._ask = ask
        self._arrived: deque[asyncio.Future[T]] = deque()
        self._waiting: deque[asyncio.Future[T]] = deque()
        self._outstanding = 0

    async def receive(self) -> T:
        if self._arrived:
            return self._arrived.popleft().result()
        loop = _loop.current()
        waiter: asyncio.Future[T] = loop.create_future()
        self._waiting.append(waiter)
        try:
            if self._outstanding < len(self._waiting):
                self._outstanding += 1
                loop.submit(self._ask()).add_done_callback(self._take)
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                waiter.exception()  # looked at: it is told to the next one
                self._arrived.appendleft(waiter)
            raise
        finally:
            self._waiting.remove(waiter)

    def _take(self, answer: asyncio.Future[T]) -> None:
        self._outstanding -= 1
        if answer.cancelled():
            return
        error = answer.exception()
        waiter = next((one for one in self._waiting if not one.done()), None)
        if waiter is None:
            self._arrived.append(answer)
        elif error is not None:
            waiter.set_exception(error)
        else:
            waiter.set_result(answer.result())
