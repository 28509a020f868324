"""Level 1 for one guest: its queues, and its calls on KV pages and embeds, as the control layer takes them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pie_edge.control.handles import Handles, KvRange, Tensors
from pie_edge.control.queue import HostTensor
from pie_edge.errors import InvalidHandle, PieError, ResourceError
from pie_edge.host.table import Table

if TYPE_CHECKING:
    from pie_edge.control.space import Space

KvSlice = tuple[Sequence[int], int, int]
"""``(pages, first, last)`` of the WIT record."""
_MOST_QUEUES = 10_000
_LONGEST_NAME = 256


class Queue:
    """``failure`` is what a call of it failed with later, until somebody is told."""

    def __init__(self) -> None:
        self.failure: PieError | None = None

    def note(self, done: asyncio.Future[Any]) -> None:
        error = None if done.cancelled() else done.exception()
        if isinstance(error, PieError) and self.failure is None:
            self.failure = error

    def tell(self) -> None:
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure


class Level1:
    """``open_handles`` gives the space's level 1 objects, at first use: most guests have none."""

    def __init__(self, space: Space, page_size: int, open_handles: Callable[[Space], Handles]) -> None:
        self._space = space
        self._page_size = page_size
        self._open_handles = open_handles
        self._handles: Handles | None = None
        self._queues: Table[Queue] = Table(space.name, "queue", _MOST_QUEUES)

    @property
    def handles(self) -> Handles:
        """Raises what the space ended with, if it has: OutOfPages, for one that had to make room."""
        self._space.check_open()
        if self._handles is None:
            self._handles = self._open_handles(self._space)
        return self._handles

    def create_queue(self) -> int:
        return self._queues.add(Queue())

    def drop_queue(self, queue: int) -> None:
        self._queues.drop(queue)
        self._space.set_priority((self._space, queue), 0)

    def set_priority(self, queue: int, priority: int) -> None:
        self._queue(queue)
        self._space.set_priority((self._space, queue), priority)

    def forward(
        self,
        queue: int,
        context: Sequence[KvSlice],
        inputs: Sequence[int],
        writes: Sequence[KvSlice],
        outputs: Sequence[int],
        mask: Sequence[bool] | None,
        layers: Sequence[int] | None = None,
        adapter: str | None = None,
    ) -> None:
        """With ``layers``, the attention of the outputs in these is observed; ``adapter`` names one of the model's."""
        order = self._queue(queue)
        reads, places = self._ranges(context), self._ranges(writes)
        rows = None if mask is None else self._rows(mask, len(inputs), [*reads, *places])
        done = self.handles.forward(queue, reads, inputs, places, outputs, rows, layers, adapter)
        done.add_done_callback(order.note)

    def mask_page(self, queue: int, page: int, hidden: Sequence[bool]) -> None:
        order = self._queue(queue)
        self.handles.mask_page(queue, page, hidden).add_done_callback(order.note)

    def copy(self, queue: int, source: KvSlice, target: KvSlice) -> None:
        order = self._queue(queue)
        reads, writes = self._ranges([source]), self._ranges([target])
        lengths = [sum(part.last - part.first for part in parts) for parts in (reads, writes)]
        if lengths[0] != lengths[1]:
            raise InvalidHandle(
                f"{self._space.name} copies {lengths[0]} tokens to {lengths[1]} places; the two must be equally many"
            )
        self.handles.check([*reads, *writes])
        for one, other, count in _runs(reads, writes):
            done = self.handles.copy_tokens(queue, one.page, other.page, one.first, other.first, count)
            done.add_done_callback(order.note)

    def export(self, pages: Sequence[int], name: str) -> None:
        if not 0 < len(name) <= _LONGEST_NAME:
            raise ResourceError(
                f"{self._space.name} exports pages under a name of {len(name):,} characters; give it 1 to {_LONGEST_NAME}"
            )
        self.handles.export_pages(pages, name)

    def synchronize(self, queue: int) -> tuple[asyncio.Future[Tensors], Callable[[Tensors], None]]:
        """What to wait for, and what to do then: it raises what an earlier call failed with."""
        order = self._queues.find(queue)
        return self.handles.synchronize(queue), lambda _: order.tell()

    def next_distribution(self, embed: int) -> tuple[asyncio.Future[Tensors], Callable[[Tensors], Any]]:
        """What to wait for, and what to make of it: ``(tokens, probabilities)``."""
        results, row = self.handles.next_distribution(embed)
        results.add_done_callback(self._told)

        def present(tensors: Tensors) -> tuple[memoryview, memoryview]:
            tokens, probabilities, *_ = tensors
            return _row(tokens, row), _row(probabilities, row)

        return results, present

    def attention_mass(self, embed: int) -> tuple[asyncio.Future[Tensors], Callable[[Tensors], Any]]:
        """What to wait for, and what to make of it: the masses."""
        results, row = self.handles.attention_mass(embed)
        results.add_done_callback(self._told)
        return results, lambda tensors: _row(tensors[-1], row)

    def _told(self, results: asyncio.Future[Tensors]) -> None:
        """Whoever asks for a pass's output hears of its failure there."""
        error = None if results.cancelled() else results.exception()
        if error is not None:
            for queue in self._queues:
                if queue.failure is error:
                    queue.failure = None

    def _queue(self, number: int) -> Queue:
        """One that is about to get another call. Raises what an earlier one failed with."""
        queue = self._queues.find(number)
        queue.tell()
        return queue

    def _ranges(self, slices: Sequence[KvSlice]) -> list[KvRange]:
        size = self._page_size
        found = []
        for pages, first, last in slices:
            if not first <= last <= len(pages) * size:
                raise InvalidHandle(
                    f"{self._space.name} names tokens {first}…{last} of {len(pages)} KV pages of {size} tokens each"
                )
            if first == last:
                continue
            named = pages[first // size : -(-last // size)]
            whole = [KvRange(page, 0, size) for page in named]
            whole[-1] = whole[-1]._replace(last=(last - 1) % size + 1)
            whole[0] = whole[0]._replace(first=first % size)
            found += whole
        return found

    def _rows(self, mask: Sequence[bool], inputs: int, parts: Sequence[KvRange]) -> list[Sequence[bool]]:
        width = sum(part.last - part.first for part in parts)
        if len(mask) != inputs * width:
            raise InvalidHandle(
                f"{self._space.name} gave a mask of {len(mask)} values; {inputs} inputs that see {width} tokens need "
                f"{inputs * width}"
            )
        return [mask[start : start + width] for start in range(0, len(mask), width)] if width else []


def _row(tensor: HostTensor, row: int) -> memoryview:
    width = tensor.shape[-1]
    return tensor.data[row * width : (row + 1) * width]


def _runs(source: Sequence[KvRange], target: Sequence[KvRange]) -> Iterator[tuple[KvRange, KvRange, int]]:
    """Two equally long lists of tokens, cut where either goes on to another page: where each begins, and how many there are."""
    reads, writes = list(reversed(source)), list(reversed(target))
    while reads:
        one, other = reads.pop(), writes.pop()
        count = min(one.last - one.first, other.last - other.first)
        yield one, other, count
        for part, rest in ((one, reads), (other, writes)):
            if part.first + count < part.last:
                rest.append(KvRange(part.page, part.first + count, part.last))
