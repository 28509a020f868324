"""The engine: takes calls from spaces, forms steps, runs them on a device, and gives the results back.

Everything it decides is in the pure modules beside it; here is the only place of ``control`` that awaits.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pie_edge.backend import Backend
from pie_edge.control import batch, pages
from pie_edge.control.device import Device, DeviceSettings
from pie_edge.control.epilogues import check_parameters
from pie_edge.control.pages import PagePool, WorkingSet
from pie_edge.control.queue import ForwardCall, HostTensor, Queues, Work
from pie_edge.control.scheduler import Budget, Slice, pick
from pie_edge.control.space import Space
from pie_edge.errors import BackendError, ContextOverflow, InferletCancelled, InvalidHandle, OutOfPages, PieError
from pie_edge.model.spec import Family, Spec
from pie_edge.sampling import Epilogue, parse


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What an inferlet may know of the model."""

    name: str
    architecture: str
    vocabulary: int
    context: int
    page_size: int
    licence: str = ""
    description: str = ""


@dataclass(slots=True)
class Statistics:
    steps: int = 0
    rows: int = 0
    largest_step: int = 0


class Engine:
    """One model on one device. Make it with ``Engine.open``; ``close`` ends waiting calls with InferletCancelled."""

    def __init__(self, facts: ModelFacts, device: Device) -> None:
        self.facts = facts
        self.pool = PagePool(device.cache.pages, device.cache.page_size)
        self.context_limit = facts.context
        self.vocabulary = facts.vocabulary
        self.statistics = Statistics()
        self._device = device
        self._budget = Budget(
            **{name: getattr(device.limit, name) for name in ("rows", "sequences", "sampled", "entries")}
        )
        self._queues = Queues()
        self._arrivals = itertools.count()
        self._wake = asyncio.Event()
        self._spaces: dict[Work, Space] = {}
        self._running = asyncio.get_running_loop().create_task(self._serve(), name="pie-edge engine")

    @classmethod
    async def open(
        cls,
        facts: ModelFacts,
        spec: Spec,
        family: Family,
        weights: Mapping[str, Any],
        backend: Backend,
        settings: DeviceSettings,
        progress: Callable[[int, int, str], None] | None = None,
    ) -> Engine:
        """Load the weights (``name → (Encoding, WeightSource)``) and make the caches.

        Raises OutOfMemory before the first byte moves.
        """
        return cls(facts, await Device.open(spec, family, weights, backend, settings, progress))

    def open_space(self, name: str, seed: int) -> Space:
        return Space(name, seed, self, self._forget)

    async def close(self) -> None:
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        for work in list(self._queues):
            self._end(work, InferletCancelled(f"{work.owner}: the engine was closed"))
        await self._device.close()

    def enqueue(self, space: Space, context: WorkingSet, call: ForwardCall) -> asyncio.Future[tuple[HostTensor, ...]]:
        """A call of a space, checked against the step's limits; it waits behind earlier ones of its context."""
        epilogue = self._epilogue(call, space.name)
        tail = len(call.tokens) - min(call.rows, default=len(call.tokens) - 1)
        if len(call.rows) > self._budget.sampled or (call.rows and tail > self._budget.rows):
            raise ContextOverflow(
                f"{space.name} reads {len(call.rows)} rows that reach {tail} tokens back; one pass can read "
                f"{self._budget.sampled} rows of its last {self._budget.rows} tokens. Split the pass"
            )
        future: asyncio.Future[tuple[HostTensor, ...]] = asyncio.get_running_loop().create_future()
        work = Work(call, space.name, space.seed, context, epilogue, future, next(self._arrivals))
        context.pending += 1
        self._spaces[work] = space
        self._queues.push(work)
        self._wake.set()
        return future

    def _epilogue(self, call: ForwardCall, who: str) -> Epilogue | None:
        if call.epilogue is None:
            return None
        if not call.rows:
            raise InvalidHandle(f"{who} gave an epilogue without rows to read; name them in `rows`")
        epilogue = parse(call.epilogue, vocabulary=self.vocabulary, rows=len(call.rows))
        check_parameters(epilogue, call.parameters, who)
        return epilogue

    def _forget(self, space: Space) -> None:
        for work in [work for work in self._queues if self._spaces[work] is space]:
            self._end(work, InferletCancelled(f"{space.name} ended before its pass ran"))

    async def _serve(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                while slices := self._next_step():
                    await self._step(slices)
            except Exception as error:
                # An engine that stopped would hang every caller: they hear of it, and the next call is served.
                for work in list(self._queues):
                    self._end(work, _told(error))

    def _next_step(self) -> tuple[Slice, ...]:
        for work in list(self._queues):
            if work.future.done():  # cancelled while it waited
                self._end(work, None)
        return pick(self._queues.heads(), self._budget, self.pool.page_size)

    async def _step(self, slices: tuple[Slice, ...]) -> None:
        ready, copies = self._claim(slices)
        if not ready:
            return
        step = batch.build(ready, self.pool.page_size)
        try:
            results = await self._device.run(step, copies)
        except Exception as error:
            for part in ready:
                self._end(part.work, _told(error))
            return
        self.statistics.steps += 1
        self.statistics.rows += step.inputs.counts.rows
        self.statistics.largest_step = max(self.statistics.largest_step, len(ready))
        for part in ready:
            part.work.done += part.count
        for readout, tensors in zip(step.readouts, results, strict=True):
            self._deliver(readout.part.work, tensors)

    def _claim(self, slices: tuple[Slice, ...]) -> tuple[list[Slice], list[pages.Copy]]:
        """Make each slice's pages its own; a slice for which no page is left fails alone."""
        ready: list[Slice] = []
        copies: list[pages.Copy] = []
        for part in slices:
            start = part.work.call.start + part.first
            try:
                copies += pages.make_writable(self.pool, part.work.context, start, part.end, part.work.owner)
            except OutOfPages as error:
                self._end(part.work, error)
                continue
            ready.append(part)
        return ready, copies

    def _deliver(self, work: Work, tensors: tuple[HostTensor, ...]) -> None:
        usage = self._spaces[work].usage
        usage.passes += 1
        usage.forwarded_tokens += len(work.call.tokens)
        if work.call.rows:
            usage.read_rows += len(work.call.rows)
            usage.last_result = time.perf_counter()
            usage.first_result = usage.first_result or usage.last_result
        if not work.future.done():
            work.future.set_result(tensors)
        self._end(work, None)

    def _end(self, work: Work, error: PieError | None) -> None:
        self._queues.finish(work)
        if self._spaces.pop(work, None) is not None:
            pages.end_call(self.pool, work.context)
        if error is not None and not work.future.done():
            work.future.set_exception(error)
            work.future.exception()  # a caller that has gone doesn't make asyncio complain


def _told(error: Exception) -> PieError:
    if isinstance(error, PieError):
        return error
    told = BackendError(
        f"a step failed with {type(error).__name__}: {error}; this is a fault of pie-edge, please report it"
    )
    told.__cause__ = error
    return told
