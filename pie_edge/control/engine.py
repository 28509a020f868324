"""The engine: takes calls from spaces, forms steps, runs them on a device, and gives the results back.

Everything it decides is in the pure modules beside it; here is the only place of ``control`` that awaits.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pie_edge.backend import Backend
from pie_edge.control import batch, pages, snapshot
from pie_edge.control.ahead import RunAhead
from pie_edge.control.device import Device, DeviceSettings, Flight
from pie_edge.control.epilogues import check_parameters
from pie_edge.control.handles import Handles
from pie_edge.control.pace import Pace
from pie_edge.control.pages import Copy, Entry, PagePool, WorkingSet
from pie_edge.control.parking import Parking, Spill
from pie_edge.control.prefix import PrefixIndex
from pie_edge.control.queue import HostTensor, Queues, Work
from pie_edge.control.residency import Move, Residency, out_of_pages
from pie_edge.control.scheduler import Budget, Slice, pick
from pie_edge.control.space import Request, Space
from pie_edge.errors import BackendError, ContextOverflow, InferletCancelled, InvalidHandle, OutOfPages, PieError
from pie_edge.model.spec import Family, Spec
from pie_edge.sampling import Epilogue, parse

COURTESY = 3
"""Turns of the loop between an answer and the next step: what it takes a waiting program to ask again."""
STEPS_IN_FLIGHT = 2
"""The running step, and one that waits behind it."""


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
    version: str = ""


@dataclass(slots=True)
class Statistics:
    steps: int = 0
    rows: int = 0
    largest_step: int = 0


class Engine:
    """One model on one device. Make it with ``Engine.open``; ``close`` ends waiting calls with InferletCancelled."""

    def __init__(self, facts: ModelFacts, device: Device, spill: Spill | None = None) -> None:
        self.facts = facts
        self.pool = PagePool(device.cache.pages, device.cache.page_size)
        self.prefixes = PrefixIndex(self.pool)
        self.residency = Residency(self.pool, self.prefixes)
        self.parking = Parking(device.park_memory, spill)
        self._saves: dict[int, _Saved] = {}
        self._stale: list[int] = []
        self.exports: dict[str, list[Entry]] = {}
        self.shared: dict[str, WorkingSet] = {}
        self.pool.forget = self._stale.append
        self.context_limit = facts.context
        self.vocabulary = facts.vocabulary
        self.statistics = Statistics()
        self.spaces: set[Space] = set()
        self._device = device
        limit = device.limit
        self._budget = Budget(limit.rows, limit.sequences, limit.sampled, limit.entries, device.shared_rows)
        self.ahead = RunAhead(device.cache.token_slots, device.speculation_depth, self._unwanted)
        self._prepared: list[Work] = []
        self._answered: list[_Answered] = []
        self._queues = Queues()
        self._pace = Pace()
        self._flights: deque[Flight] = deque()
        self._arrivals, self._numbers = itertools.count(1), itertools.count(1)
        self._wake = asyncio.Event()
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
        spill: Spill | None = None,
    ) -> Engine:
        """Load the weights (``name → (Encoding, WeightSource)``) and make the caches.

        Raises OutOfMemory before the first byte moves.
        """
        return cls(facts, await Device.open(spec, family, weights, backend, settings, progress), spill)

    def open_space(self, name: str, seed: int) -> Space:
        space = Space(name, seed, next(self._numbers), self, self._forget)
        self.spaces.add(space)
        return space

    def handles(self, space: Space, top_k: int = 256) -> Handles:
        """The space's level 1 objects."""
        found = space.handles
        if not isinstance(found, Handles):
            found = space.handles = Handles(space, self, top_k)
        return found

    async def copy_tokens(self, space: Space, pairs: Sequence[tuple[Entry, int, Entry, int]]) -> None:
        """Copy keys and values: (source entry, slot, target entry, slot) each. Raises OutOfPages."""
        writes: dict[int, tuple[Entry, int]] = {}
        for _, _, target, slot in pairs:
            writes[id(target)] = target, writes.get(id(target), (target, 0))[1] | 1 << slot
        copies = pages.make_writable(self.pool, writes.values(), space.name)
        await self._copy(copies)
        size = self.pool.page_size
        await self._device.copy_slots([(s.page * size + i, t.page * size + j) for s, i, t, j in pairs])

    async def close(self) -> None:
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        for work in list(self._queues):
            self._end(work, InferletCancelled(f"{work.space.name}: the engine was closed"))
        self.parking.close()
        await self._device.close()

    def enqueue(self, space: Space, request: Request) -> asyncio.Future[tuple[HostTensor, ...]]:
        """A call of a space, checked against the step's limits; it waits behind earlier ones of its queue."""
        epilogue = self._epilogue(request, space.name)
        tail = len(request.tokens) - min(request.rows, default=len(request.tokens) - 1)
        if len(request.rows) > self._budget.sampled or (request.rows and tail > self._budget.rows):
            raise ContextOverflow(
                f"{space.name} reads {len(request.rows)} rows that reach {tail} tokens back; one pass can read "
                f"{self._budget.sampled} rows of its last {self._budget.rows} tokens. Split the pass"
            )
        if len(request.placement.entries) > self._budget.entries:
            raise ContextOverflow(
                f"{space.name} reads {len(request.placement.entries)} pages in one pass; the most is {self._budget.entries}"
            )
        ahead = self.ahead.confirm(request, epilogue)
        if ahead is not None:
            return self._take_up(ahead)
        work = self._work(space, request, epilogue)
        self._admit(work)
        self._queues.push(work)
        self._wake.set()
        return work.future

    def changed(self, context: WorkingSet) -> None:
        """A context changes between passes: what was prepared for it no longer holds."""
        self.ahead.drop(context)

    def _work(self, space: Space, request: Request, epilogue: Epilogue | None) -> Work:
        work = Work(
            space=space,
            queue=request.queue,
            tokens=request.tokens,
            rows=request.rows,
            placement=request.placement,
            context=request.context,
            epilogue=epilogue,
            parameters=request.parameters,
            future=asyncio.get_running_loop().create_future(),
            arrival=next(self._arrivals),
            action=request.action,
            mask=request.mask,
        )
        pages.begin_use(work.context, work.placement.entries)
        return work

    def _admit(self, work: Work) -> None:
        """From now on the work counts as its space's."""
        if work.context is not None:
            work.context.pending += 1
            work.context.last_used = work.arrival
        work.space.waiting += 1

    def _take_up(self, ahead: Work) -> asyncio.Future[tuple[HostTensor, ...]]:
        """What a program asks for was prepared: it waits, is under way, or is done."""
        self._admit(ahead)
        ahead.space.usage.predicted += 1
        if not ahead.done:
            self._prepared.remove(ahead)
            self.ahead.free_source(ahead)
            self._queues.push(ahead)
            self._wake.set()
            return ahead.future
        self.residency.mark(ahead)
        self._predict([ahead])
        if not ahead.flying:
            self._deliver(ahead, ahead.future.result())
        return ahead.future

    def _epilogue(self, request: Request, who: str) -> Epilogue | None:
        if request.epilogue is None:
            return None
        if not request.rows:
            raise InvalidHandle(f"{who} gave an epilogue without rows to read; name them in `rows`")
        epilogue = parse(request.epilogue, vocabulary=self.vocabulary, rows=len(request.rows))
        check_parameters(epilogue, request.parameters, who)
        return epilogue

    def _forget(self, space: Space, reason: PieError) -> None:
        self.spaces.discard(space)
        for context in space.contexts():
            self.ahead.drop(context)
        for work in [work for work in self._queues if work.space is space]:
            # One under way ends when its step does: its pages are being written.
            if work.flying:
                _fail(work, reason)
            else:
                self._end(work, reason)

    # ---- the loop

    async def _serve(self) -> None:
        while True:
            try:
                await self._turn()
            except Exception as error:
                # An engine that stopped would hang every caller: they hear of it, and the next call is served.
                self._flights.clear()
                self._pace = Pace()
                for work in list(self._prepared):
                    self._unwanted(work)
                for work in list(self._queues):
                    self._end(work, _told(error))
                await asyncio.sleep(0)

    async def _turn(self) -> None:
        """Launch what may run, land what has run, or sleep until one of the two is possible."""
        self._wake.clear()
        if len(self._flights) < STEPS_IN_FLIGHT and self._may_launch() and await self._launch():
            return
        if not self._flights or not self._flights[0].done:
            await self._wake.wait()
            return
        self._land(self._flights.popleft())
        # Whoever got an answer may ask the next thing before a step without them is formed.
        for _ in range(COURTESY):
            await asyncio.sleep(0)
            if self._everybody_asks():
                return

    def _everybody_asks(self) -> bool:
        return len(self._queues) + len(self._prepared) >= len(self.spaces)

    def _may_launch(self) -> bool:
        """Work-conserving: at once when the device is idle. Behind a running step: when everybody who could ask has asked,
        or shortly before the running step's predicted end."""
        waiting = [*self._queues.waiting(), *self._prepared]
        if not waiting:
            return False
        if self._flights and all(map(self._has_others_under_way, waiting)):
            return False
        asking = {work.space for work in (*self._queues, *self._prepared)}
        now = time.perf_counter()
        wait = max(self._pace.hold(waiting, len(asking), self.spaces, now), self._companions_due(waiting, now))
        if wait <= 0:
            return True
        asyncio.get_running_loop().call_later(wait, self._wake.set)
        return False

    def _has_others_under_way(self, work: Work) -> bool:
        """Whether its inferlet has passes of other contexts in the running step, none of them foreseen: an inferlet that works
        on several contexts side by side is served best when they share steps, so what waits of it waits for those."""
        foreseen = {ahead.context for ahead in self._prepared}
        return any(
            part.work.space is work.space
            and part.work.context is not work.context
            and part.work.context not in foreseen
            for part in self._flights[0].batch.slices
        )

    def _companions_due(self, waiting: Sequence[Work], now: float) -> float:
        """Seconds to wait for the contexts that were just answered, if all that waits is of inferlets that have such."""
        asking = {work.context for work in (*self._queues, *self._prepared)}
        due = {c.space for c in self._answered if c.until > now and c.context not in asking and not c.space.closed}
        if not due or not all(work.space in due for work in waiting):
            return 0.0
        return max(companion.until for companion in self._answered) - now

    async def _launch(self) -> bool:
        """Form the next step and put it on the device. Whether anything happened: a step, or room made for one."""
        self._drop_cancelled()
        heads = self._heads()
        while acting := [work for work in heads if work.action is not None]:
            for work in acting:
                await self._act(work)
            heads = self._heads()
        for work in heads:
            if work.adopted is None:
                work.done = work.adopted = self.residency.adopt(work)
                work.space.usage.cached_tokens += work.adopted
        admitted = self.residency.admitted(heads)
        candidates = [*admitted, *self._prepared]
        budget = self._pace.budget(self._budget, candidates, self.spaces)
        slices = pick(candidates, budget, self.pool.page_size)
        ready, copies, moves = self._claim(slices)
        for part in ready:
            part.work.launch(part.count)
        await self._copy(copies)
        await self._restore(moves)
        self.residency.pressure.recent.append(len(moves))
        refused = [part.work for part in slices if part not in ready]
        if refused:
            made_room = self._make_room(refused, busy=bool(ready or self._flights))
            if not ready:
                return made_room
        if not ready:
            return False
        step = batch.build(ready, self.pool.page_size)
        for part in ready:
            if part.last:
                room = min(self.context_limit, len(part.work.placement.entries) * self.pool.page_size)
                self.ahead.reserve_slot(part.work, room)
        self._prepared = [work for work in self._prepared if not work.flying]
        try:
            flight = await self._device.launch(step, self._wake.set)
        except Exception as error:
            self._crash(step, error)
            return True
        self._pace.launched(step.inputs.counts.rows, step.singles, time.perf_counter())
        self._flights.append(flight)
        for part in ready:
            self.ahead.free_source(part.work)
        self._predict([part.work for part in ready if part.last and part.work.confirmed])
        return True

    def _heads(self) -> list[Work]:
        """Calls that may run now and that somebody still waits for."""
        return [work for work in self._queues.heads() if not work.future.done()]

    def _predict(self, works: Sequence[Work]) -> None:
        """Prepare the passes that will follow these."""
        for work in works:
            ahead = self.ahead.predict(work, partial(self._work, work.space, epilogue=None))
            if ahead is not None:
                self._prepared.append(ahead)
                self._wake.set()

    async def _act(self, work: Work) -> None:
        assert work.action is not None
        try:
            await work.action()
        except Exception as error:
            self._end(work, _told(error))
            return
        if not work.future.done():
            work.future.set_result(())
        self._end(work, None)

    def _land(self, flight: Flight) -> None:
        """The results of a step that has run."""
        step = flight.batch
        self._pace.landed(time.perf_counter())
        try:
            results = flight.results()
        except Exception as error:
            self._crash(step, error)
            return
        self.statistics.steps += 1
        self.statistics.rows += step.inputs.counts.rows
        self.statistics.largest_step = max(self.statistics.largest_step, len(step.slices))
        for part in step.slices:
            part.work.flying -= 1
            if part.work.context is not None and not part.work.context.retired:
                self.prefixes.insert(part.work.context)
        until = time.perf_counter() + self._pace.courtesy
        foreseen = {ahead.context for ahead in self._prepared}
        self._answered = [
            _Answered(part.work.space, part.work.context, until)
            for part in step.slices
            if part.last and part.work.context is not None and part.work.context not in foreseen
        ]
        for readout, tensors in zip(step.readouts, results, strict=True):
            self._deliver(readout.part.work, tensors)

    def _deliver(self, work: Work, tensors: tuple[HostTensor, ...]) -> None:
        if not work.confirmed:
            self._keep(work, tensors)
            return
        usage = work.space.usage
        usage.passes += 1
        usage.forwarded_tokens += len(work.tokens) - (work.adopted or 0)
        if work.rows:
            usage.read_rows += len(work.rows)
            usage.last_result = time.perf_counter()
            usage.first_result = usage.first_result or usage.last_result
        if not work.future.done():
            work.future.set_result(tensors)
        self._end(work, None)

    def _keep(self, work: Work, tensors: tuple[HostTensor, ...]) -> None:
        """A prepared pass is done before anybody asked for it, or when nobody will any more."""
        self._release(work)
        if not work.future.done():
            work.future.set_result(tensors)
        if not self.ahead.wanted(work):
            self.ahead.free_slot(work)

    def _unwanted(self, work: Work) -> None:
        """Nobody will ask for a prepared pass. One that is on the device runs to its end unseen."""
        if work in self._prepared:
            self._prepared.remove(work)
        if not work.flying:
            self.ahead.free_source(work)
            self.ahead.free_slot(work)
            self._release(work)
        work.space.usage.mispredicted += 1

    def _release(self, work: Work) -> None:
        if work.using:
            work.using = False
            pages.end_use(self.pool, work.context, work.placement.entries)

    def _crash(self, step: batch.Batch, error: Exception) -> None:
        """The step came to nothing: its calls fail, and what they wrote is not to be trusted."""
        for part in step.slices:
            for entry, _ in part.writes:
                self.prefixes.remove(entry.page)
        for work in (part.work for part in step.slices):
            work.flying -= 1
            if work.context is not None:
                work.context.plain = False
            if not work.confirmed and work.context is not None:
                self.ahead.drop(work.context)
                self._unwanted(work)
            else:
                self._end(work, _told(error))

    # ---- pages

    def _claim(self, slices: Sequence[Slice]) -> tuple[list[Slice], list[Copy], list[Move]]:
        """Pages for each slice, content that comes back from host memory included; one that gets none stays queued."""
        ready: list[Slice] = []
        copies: list[Copy] = []
        moves: list[Move] = []
        for part in slices:
            before = self.prefixes.evictions
            try:
                restored = self.residency.restore(self.residency.parked(part), part.work.space.name)
                part.work.space.usage.restored_pages += len(restored)
                moves += restored
                copies += self.residency.claim(part)
            except OutOfPages:
                continue
            finally:
                part.work.space.usage.evicted_pages += self.prefixes.evictions - before
            ready.append(part)
        return ready, copies, moves

    def _make_room(self, refused: Sequence[Work], busy: bool) -> bool:
        """Drop what was only foreseen; park an idle context; with none, and nothing running that will free pages, end the
        newest inferlet. Whether there is more room now."""
        foreseen = [work.context for work in self._prepared if work.context is not None]
        for context in foreseen:
            self.ahead.drop(context)
        asking = [work.space for work in refused if work.confirmed]
        if foreseen or not asking:
            return bool(foreseen)
        if not self.parking.full:
            moves = self.residency.park(asking[0], self.spaces)
            if moves:
                self._save(moves)
                return True
        if busy:
            return False
        newest = self.residency.newest(self.spaces)
        if newest is None:
            return False
        self.residency.pressure.ended += 1
        newest.end(out_of_pages(newest, self.pool))
        return True

    async def _copy(self, copies: Sequence[Copy]) -> None:
        """Duplicate pages on the device; then their sources may go."""
        try:
            await self._device.copy_pages(copies)
        finally:
            self.pool.release(copy.source for copy in copies)

    async def _restore(self, moves: Sequence[Move]) -> None:
        """Bring parked content back to the device, then let go of what nobody names any more."""
        for move in moves:
            saved = self._saves.get(move.handle)
            content = (await saved.pages)[saved.index] if saved else self.parking.get(move.handle)
            self._device.load(move.page, content)
        while self._stale:
            handle = self._stale.pop()
            if self._saves.pop(handle, None) is None:
                self.parking.drop(handle)

    def _save(self, moves: Sequence[Move]) -> None:
        """Read parked pages from the device, before whatever runs next overwrites them."""
        saving = self._device.save([move.page for move in moves])
        for index, move in enumerate(moves):
            self._saves[move.handle] = _Saved(saving, index)
        saving.add_done_callback(lambda task: self._saved(moves, task))

    def _saved(self, moves: Sequence[Move], task: asyncio.Task[list[bytes]]) -> None:
        if task.cancelled() or task.exception() is not None:
            return  # whoever wants the content back hears of it
        for move, content in zip(moves, task.result(), strict=True):
            if self._saves.pop(move.handle, None) is not None:
                self.parking.put(move.handle, content)

    # ---- snapshots

    def save_context(self, space: Space, working_set: int, length: int) -> Coroutine[Any, Any, snapshot.Content]:
        """The keys and values of a context's first ``length`` tokens, after the passes it has before this."""
        return snapshot.save(self, space, working_set, length)

    def load_context(self, space: Space, working_set: int, content: snapshot.Content) -> None:
        """Fill an empty context with what was saved."""
        snapshot.load(self, space, working_set, content)

    @property
    def page_states(self) -> tuple[snapshot.PageState, ...]:
        """What the bytes of a page are, in their order."""
        return tuple(snapshot.PageState(one.name, one.dtype.value, one.shape) for one in self._device.page_states)

    def read_pages(self, entries: Sequence[Entry]) -> asyncio.Task[list[bytes]]:
        """Start reading the content of written pages, wherever it is, as it is after the steps so far."""
        saving = self._device.save([entry.page for entry in entries if entry.parked is None])
        numbers = itertools.count()
        sources = [
            _Saved(saving, next(numbers))
            if entry.parked is None
            else self._saves.get(entry.parked) or self.parking.get(entry.parked)
            for entry in entries
        ]

        async def read() -> list[bytes]:
            return [one if isinstance(one, bytes) else (await one.pages)[one.index] for one in sources]

        return asyncio.get_running_loop().create_task(read())

    def put_page(self, entry: Entry, content: bytes) -> None:
        """Give an unmapped page-table entry its content, as if it had been swapped out."""
        if self.parking.full:
            raise OutOfPages(
                "host memory has no room for a snapshot's pages: it is full with those of waiting inferlets; run fewer at once"
            )
        self.parking.put(self.residency.hold(entry), content)

    # ---- ends

    def _drop_cancelled(self) -> None:
        for work in list(self._queues):
            if work.future.done() and not work.flying:
                self._end(work, None)

    def _end(self, work: Work, error: PieError | None) -> None:
        self._queues.finish(work)
        if not work.ended:
            work.ended = True
            work.space.waiting -= 1
            self._release(work)
            self.ahead.free_slot(work)
            if work.context is not None:
                pages.end_call(self.pool, work.context)
        if error is not None:
            _fail(work, error)


@dataclass(frozen=True, slots=True)
class _Answered:
    """A context whose pass has just been answered, and until when others of its inferlet wait for it to ask again."""

    space: Space
    context: WorkingSet
    until: float


@dataclass(frozen=True, slots=True)
class _Saved:
    """Content on its way to host memory."""

    pages: asyncio.Task[list[bytes]]
    index: int


def _fail(work: Work, error: PieError) -> None:
    if not work.future.done():
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
