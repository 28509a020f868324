"""An inferlet's outstanding requests, and the one call in which it waits for them."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pie_edge.control.queue import ForwardCall, HostTensor
from pie_edge.errors import InferletCancelled, InvalidHandle, PieError, ResourceError

if TYPE_CHECKING:
    from pie_edge.control.space import Space
    from pie_edge.host.mailbox import Mailbox

Completion = tuple[int, Any]
"""``(ticket, outcome)``: a value of the WIT variant, or a ``PieError``."""

_MOST_OUTSTANDING = 10_000

# dtype of a tensor → its case in WIT, and the element type of its memory
_CASES = {"f32": ("floats", "f"), "i32": ("signed", "i"), "u32": ("unsigned", "I"), "bool": ("bools", "B")}
_CODES = dict(_CASES.values())


class Events:
    """Requests of one guest. ``wake`` is called when a guest that sleeps in ``wait`` can go on."""

    def __init__(self, space: Space, mailbox: Mailbox, wake: Callable[[], None]) -> None:
        self._space = space
        self._mailbox = mailbox
        self._wake = wake
        self._outstanding: dict[int, asyncio.Future[Any]] = {}
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
        return complete

    def rouse(self) -> None:
        """Ends the sleep, if the guest is in one."""
        sleep, self._sleep = self._sleep, None
        if sleep is not None:
            sleep.end()
            self._wake()

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
            future = self._mailbox.receive() if kind == "receive" else self._space.submit(_forward_call(payload))
        except PieError as error:
            self._complete.append((ticket, error))
            return
        self._outstanding[ticket] = future
        future.add_done_callback(lambda done: self._arrived(ticket, done))

    def _check(self, ticket: int) -> None:
        if ticket in self._outstanding:
            raise InvalidHandle(f"ticket {ticket} is in use; give every outstanding request another one")
        if len(self._outstanding) >= _MOST_OUTSTANDING:
            raise ResourceError(f"{_MOST_OUTSTANDING:,} requests are outstanding; wait for some before making more")

    def _arrived(self, ticket: int, future: asyncio.Future[Any]) -> None:
        if self._outstanding.pop(ticket, None) is None:
            if not future.cancelled():
                future.exception()  # it was looked at: the guest has gone
            return
        self._complete.append((ticket, _outcome(future)))
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


def _forward_call(call: tuple[Any, ...]) -> ForwardCall:
    context, tokens, start, end, rows, epilogue, parameters = call
    data = tuple(array(_CODES[case], values).tobytes() for case, values in parameters)
    return ForwardCall(context, tuple(tokens), start, end, tuple(rows), epilogue, data)


def _outcome(future: asyncio.Future[Any]) -> Any:
    if future.cancelled():
        return InferletCancelled("the request was cancelled")
    error = future.exception()
    if error is not None:
        if isinstance(error, PieError):
            return error
        return PieError(f"the engine failed: {type(error).__name__}: {error}")
    value = future.result()
    return ("text", value) if isinstance(value, str) else ("tensors", [_tensor(tensor) for tensor in value])


def _tensor(tensor: HostTensor) -> tuple[tuple[int, ...], tuple[str, Any]]:
    case, code = _CASES[tensor.dtype]
    data: Any = memoryview(tensor.data).cast("B")
    return tensor.shape, (case, data.cast(code))
