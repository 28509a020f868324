"""The client that started this inferlet."""

from __future__ import annotations

import asyncio
from collections import deque

from inferlet import _loop
from inferlet._host import Receive, host

_inbox: deque[str] = deque()
_waiting: deque[asyncio.Future[str]] = deque()
_outstanding = 0


def send(text: str) -> None:
    """A message to the client. Raises ResourceError if it is too long or the client has stopped reading."""
    host().send(text)


async def receive() -> str:
    """The client's next message. Raises ResourceError if no client is there to send one.

    A cancelled ``receive`` (by ``asyncio.wait_for``, say) loses nothing: the message goes to the next one.
    """
    global _outstanding
    if _inbox:
        return _inbox.popleft()
    loop = _loop.current()
    waiter: asyncio.Future[str] = loop.create_future()
    _waiting.append(waiter)
    try:
        if _outstanding < len(_waiting):
            _outstanding += 1
            loop.submit(Receive()).add_done_callback(_arrived)
        return await waiter
    except asyncio.CancelledError:
        if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
            _inbox.appendleft(waiter.result())
        raise
    finally:
        _waiting.remove(waiter)


def _arrived(answer: asyncio.Future[str]) -> None:
    global _outstanding
    _outstanding -= 1
    waiter = next((one for one in _waiting if not one.done()), None)
    error = None if answer.cancelled() else answer.exception()
    if error is not None:
        if waiter is not None:
            waiter.set_exception(error)
    elif waiter is not None:
        waiter.set_result(answer.result())
    else:
        _inbox.append(answer.result())
