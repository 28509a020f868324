"""Command queues of level 1."""

from __future__ import annotations

from inferlet import _loop
from inferlet._host import Synchronize, host
from inferlet.errors import UsageError


class Queue:
    """Calls of one queue run in the order in which they are made; those of different queues side by side."""

    def __init__(self) -> None:
        self._handle = host().create_queue()
        self.id = self._handle.id

    def set_priority(self, priority: int) -> None:
        """Of two queues with work to do, that of the higher priority goes first; 0 at the start."""
        if not -(2**31) <= priority < 2**31:
            raise UsageError(f"a priority of {priority} was given; it is a whole number of 32 bits")
        self._handle.set_priority(priority)

    async def synchronize(self) -> None:
        """Waits until everything that was called on the queue is done. Raises what a call failed with."""
        await _loop.current().submit(Synchronize(self.id))


_default: Queue | None = None


def create_queue() -> Queue:
    return Queue()


async def synchronize(queue: Queue | None = None) -> None:
    """``queue.synchronize()``, of the queue that calls use which name none."""
    await or_default(queue).synchronize()


def set_priority(priority: int, queue: Queue | None = None) -> None:
    or_default(queue).set_priority(priority)


def or_default(given: Queue | None) -> Queue:
    global _default
    if given is not None:
        return given
    if _default is None:
        _default = Queue()
    return _default


def flush() -> None:
    """What was submitted before is on its way before a call that changes state."""
    loop = _loop.running()
    if loop is not None:
        loop.flush()
