"""Calls that wait: in order within a context, side by side across contexts."""

from __future__ import annotations

from asyncio import Future
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from pie_edge.control.pages import WorkingSet
from pie_edge.sampling import Epilogue


@dataclass(frozen=True, slots=True)
class HostTensor:
    """A value that came back from the device: flat memory, ``dtype`` f32, i32, u32 or bool, row-major."""

    dtype: str
    shape: tuple[int, ...]
    data: memoryview


@dataclass(frozen=True, slots=True)
class ForwardCall:
    """A forward pass as an inferlet asks for it: write ``tokens`` at ``start … end`` of a working set, read rows out.

    ``rows`` are indices into ``tokens`` whose logits the epilogue sees; ``parameters`` are its host-supplied inputs, as
    bytes in their own dtype, in the order of the wire form.
    """

    working_set: int
    tokens: tuple[int, ...]
    start: int
    end: int
    rows: tuple[int, ...] = ()
    epilogue: str | None = None
    parameters: tuple[bytes, ...] = ()


@dataclass(slots=True, eq=False)
class Work:
    """A call on its way: what it asked, for whom, and how many of its rows have been forwarded."""

    call: ForwardCall
    owner: str
    seed: int
    context: WorkingSet
    epilogue: Epilogue | None
    future: Future[tuple[HostTensor, ...]]
    arrival: int
    done: int = 0

    @property
    def remaining(self) -> int:
        return len(self.call.tokens) - self.done

    @property
    def unsplittable_from(self) -> int:
        """Rows from here on must share the last step: an epilogue sees all of its rows at once."""
        return min(self.call.rows, default=len(self.call.tokens) - 1)


class Queues:
    """One queue per working set. Only a queue's head may run; heads come in order of arrival."""

    def __init__(self) -> None:
        self._queues: dict[int, deque[Work]] = {}

    def __len__(self) -> int:
        return sum(len(queue) for queue in self._queues.values())

    def __iter__(self) -> Iterator[Work]:
        for queue in self._queues.values():
            yield from queue

    def push(self, work: Work) -> None:
        self._queues.setdefault(id(work.context), deque()).append(work)

    def heads(self) -> list[Work]:
        return sorted((queue[0] for queue in self._queues.values()), key=lambda work: work.arrival)

    def finish(self, work: Work) -> None:
        """Take a work out, wherever it stands in its queue."""
        queue = self._queues.get(id(work.context), deque())
        if work in queue:
            queue.remove(work)
        if not queue:
            self._queues.pop(id(work.context), None)
