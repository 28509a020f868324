"""The engine: takes calls from spaces, forms steps, runs them on a device, and gives the results back.

Everything it decides is in the pure modules beside it; what awaits is here, in ``contents`` and in ``snapshot``.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from pie_edge.backend import Backend
from pie_edge.control import batch, observation, snapshot
from pie_edge.control.adoption import Adoption
from pie_edge.control.behind import Behind
from pie_edge.control.calls import Calls, not_finite
from pie_edge.control.cells import Slots
from pie_edge.control.contents import Contents
from pie_edge.control.device import Device, Flight
from pie_edge.control.dispatch import Dispatch
from pie_edge.control.epilogues import check_kept, check_parameters
from pie_edge.control.facts import Abilities, ModelFacts
from pie_edge.control.handles import Handles
from pie_edge.control.loss import Losses
from pie_edge.control.pages import Entry, PagePool, WorkingSet
from pie_edge.control.parking import Parking, Spill
from pie_edge.control.plan import DeviceSettings
from pie_edge.control.prefix import PrefixIndex
from pie_edge.control.queue import Work, unsplittable_from
from pie_edge.control.recurrence import StatePool
from pie_edge.control.reopened import Reopened
from pie_edge.control.residency import Residency, Resident
from pie_edge.control.room import Room
from pie_edge.control.scheduler import Budget, Slice, pick
from pie_edge.control.shared import Shared
from pie_edge.control.slots import SlotResidency
from pie_edge.control.space import Request, Space
from pie_edge.control.statistics import Statistics, Step
from pie_edge.errors import ContextOverflow, DeviceLost, InferletCancelled, InvalidHandle, PieError, Unsupported
from pie_edge.model.adapters import Adapters
from pie_edge.model.spec import Family, Spec
from pie_edge.sampling import Epilogue, parse

COURTESY = 3
"""Turns of the loop between an answer and the next step: what it takes a waiting program to ask again."""
STEPS_IN_FLIGHT = 2
"""The running step, and one that waits behind it."""


class Engine:
    """One model on one device. Make it with ``Engine.open``; ``close`` ends waiting calls with InferletCancelled. ``engines`` are
    all that serve the model, this one among them; ``on_lost`` is called when its device is given up."""

    def __init__(self, facts: ModelFacts, device: Device, spill: Spill | None = None) -> None:
        self.facts = facts
        handles = itertools.count(1)
        self.pool = PagePool(device.cache.pages, device.cache.page_size, device.growth)
        self.behind = Behind(self.pool, device.window)
        self.prefixes = PrefixIndex(self.pool)
        self.residency = Residency(self.pool, self.prefixes, handles)
        self.parking = Parking(device.park_memory, spill)
        self.contents = Contents(self.residency, self.parking, device.pages)
        kept: dict[Resident, Contents] = {self.residency: self.contents}
        self.slots: StatePool | None = None
        self.slot_contents: Contents | None = None
        residency = None
        if device.slots is not None:
            self.slots = StatePool(device.cache.state_slots, facts.name, recurs=device.recurs)
            residency = SlotResidency(self.slots, handles)
            self.slot_contents = kept[residency] = Contents(residency, self.parking, device.slots)
        # Pages that others have computed lack what they have done to the recurrent state.
        self._adoption = Adoption(self.pool, self.prefixes) if residency is None else None
        self.exports: dict[str, list[Entry]] = {}
        self.shared = Shared(self.pool, asyncio.get_running_loop().call_later)
        self.context_limit = facts.context
        self.vocabulary = facts.vocabulary
        pages = device.cache.page_size if self.behind.window else None
        self.abilities = Abilities(
            longest=self.behind.longest(facts.context),
            observable_layers=device.observable_layers,
            adapters=device.adapters,
            reversible=pages if self.slots is None else self.slots.reversible,
            recurrent=self.slots is not None,
        )
        self.less = device.less
        """What the settings ask for more of than the device has."""
        self.statistics = Statistics(time.perf_counter())
        self.spaces: set[Space] = set()
        self._device = device
        limit = device.limit
        self.losses = Losses(sticky=device.sticky)
        self.engines: Sequence[Engine] = (self,)
        self.on_lost: Callable[[], None] = lambda: None
        self._budget = Budget(limit.rows, limit.sequences, limit.sampled, limit.entries, device.shared_rows)
        self._wake = asyncio.Event()
        slots, depth = Slots(device.cache.token_slots), device.speculation_depth
        self.calls = Calls(
            self.residency, slots, facts.vocabulary, facts.context, depth, self._wake.set, self.statistics
        )
        self._room = Room(self.residency, residency, kept, self.parking, self.calls, self.spaces, self.shared)
        self._reopened = Reopened(device, self.spaces, self.prefixes, self._unshare)
        self._dispatch = Dispatch()
        self._flights: deque[tuple[Flight, Step]] = deque()
        self._numbers = itertools.count(1)
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
        adapters: Adapters | None = None,
    ) -> Engine:
        """Load the weights (``name → (Encoding, WeightSource)``) and make the caches.

        Raises OutOfMemory before the first byte moves.
        """
        device = await Device.open(spec, family, weights, backend, settings, progress, facts.name, adapters)
        return cls(facts, device, spill)

    def open_space(self, name: str, seed: int, parent: Space | None = None) -> Space:
        """``parent`` is whose child it is for: both are here."""
        space = Space(name, seed, next(self._numbers), self, self._forget)
        self.spaces.add(space)
        return space

    def take(self, space: Space) -> None:
        """One that has nothing on any engine yet."""
        space.move(self, self._forget)
        self.spaces.add(space)

    def handles(self, space: Space, top_k: int = 256) -> Handles:
        """The space's level 1 objects. Raises Unsupported for a model with recurrent state."""
        if self.slots is not None:
            raise Unsupported(
                f"{space.name} asks for single KV pages or embeds, and {self.facts.name} has recurrent state, which no page has: "
                "it has no trait allocate, forward, input-text or output-text. Use a working set, or a Context"
            )
        if not isinstance(space.handles, Handles):
            space.handles = Handles(space, top_k)
        return space.handles

    async def close(self) -> None:
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        for work in list(self.calls.queues):
            self.calls.fail(work, InferletCancelled(f"{work.space.name}: the engine was closed"))
        self.shared.close()
        self.contents.close()
        await self._device.close()

    def enqueue(self, space: Space, request: Request) -> Work:
        """A call of a space, checked against the step's limits; it waits behind earlier ones of its queue."""
        if self.lost:
            raise DeviceLost(f"{space.name} is on {self.device_name}, which is lost: {self.lost}")
        epilogue = self._epilogue(request, space.name)
        if request.observed is not None:
            observation.check(request.observed, self.abilities.observable_layers, self._device.backend, space.name)
        tail = len(request.tokens) - unsplittable_from(request.tokens, request.rows, request.observed)
        logits = len(request.rows) if epilogue is None or epilogue.reads_logits else 0
        if logits > self._budget.sampled or tail > self._budget.rows:
            raise ContextOverflow(
                f"{space.name} reads {logits} rows of logits, and what it reads or observes reaches {tail} tokens back; one "
                f"pass can read {self._budget.sampled} rows, of its last {self._budget.rows} tokens. Split the pass"
            )
        if len(request.placement.entries) > self._budget.entries:
            raise ContextOverflow(
                f"{space.name} reads {len(request.placement.entries)} pages in one pass; the most is {self._budget.entries}"
            )
        return self.calls.ask(space, request, epilogue)

    @property
    def device_name(self) -> str:
        return self._device.name

    @property
    def lost(self) -> str:
        """Why its device is given up; nothing while it serves."""
        return self.losses.reason

    @property
    def steps_in_flight(self) -> int:
        """How many are on the device, those included that wait there."""
        return len(self._flights)

    def wake(self) -> None:
        """A value that a pass waits for is there."""
        self._wake.set()

    def changed(self, context: WorkingSet) -> None:
        """A context changes between passes: what was prepared for it no longer holds."""
        self.calls.ahead.drop(context)

    def _epilogue(self, request: Request, who: str) -> Epilogue | None:
        if request.epilogue is None:
            return None
        if not request.rows:
            raise InvalidHandle(f"{who} gave an epilogue without rows to read; name them in `rows`")
        epilogue = parse(
            request.epilogue, vocabulary=self.vocabulary, rows=len(request.rows), hidden=self._device.hidden
        )
        check_parameters(epilogue, request.parameters, who)
        check_kept(epilogue, request.kept, who)
        return epilogue

    def _forget(self, space: Space, reason: PieError) -> None:
        if space in self.spaces:
            self.spaces.remove(space)
            self.statistics.ended.add(space.usage)
            if self.statistics.tokens is not None:
                self.statistics.tokens.closed(space)
        self.calls.forget(space, reason)

    # ---- the loop

    async def _serve(self) -> None:
        while True:
            try:
                await self._turn()
            except Exception as error:
                # An engine that stopped would hang every caller: they hear of it, and the next call is served.
                while self._flights:
                    self._crash(self._flights.popleft()[0].batch, error)
                self._dispatch = Dispatch()
                self.calls.fail_all(error)
                self._note_loss(error)
                await asyncio.sleep(0)

    async def _turn(self) -> None:
        """Launch what may run, land what has run, or sleep until one of the two is possible."""
        self._wake.clear()
        if len(self._flights) < STEPS_IN_FLIGHT and self._may_launch() and await self._launch():
            return
        if not self._flights or not self._flights[0][0].done:
            await self._wake.wait()
            return
        self._land(*self._flights.popleft())
        # Whoever got an answer may ask the next thing before a step without them is formed.
        for _ in range(COURTESY):
            await asyncio.sleep(0)
            if len(self.calls) >= len(self.spaces):
                return

    def _may_launch(self) -> bool:
        """Whether now is the time to form a step; if it is soon, the loop is woken then."""
        waiting = self.calls.waiting()
        if not waiting:
            return False
        running = self._flights[0][0].batch if self._flights else None
        delay = self._dispatch.delay(waiting, self.calls, running, self.spaces, time.perf_counter())
        if delay:
            asyncio.get_running_loop().call_later(delay, self._wake.set)
        return delay == 0

    async def _launch(self) -> bool:
        """Form the next step and put it on the device. Whether anything happened: a step, or room made for one."""
        began, opened = time.perf_counter(), self._reopened.notice()
        slices = await self._choose()
        chosen = time.perf_counter()
        claimed = self._room.claim(slices)
        for part in claimed.ready:
            part.work.launch(part.count)
        for work, error in claimed.failed:
            self.calls.refuse(work, error)
        await self._room.move(claimed)
        happened = bool(claimed.failed)
        if claimed.refused:
            happened |= self._room.make(claimed, busy=bool(self._flights))
        if not claimed.ready:
            return happened
        await self._put_on_device(claimed.ready, opened, began, chosen)
        return True

    async def _choose(self) -> tuple[Slice, ...]:
        """What should run next. Actions whose turn has come are done on the way."""
        self.calls.drop_hopeless()
        heads = self.calls.heads()
        while acting := [work for work in heads if work.action is not None]:
            for work in acting:
                await self._act(work)
            heads = self.calls.heads()
        if self._adoption is not None:
            flying = [part for flight, _ in self._flights for part in flight.batch.slices]
            heads = self._adoption.ready(heads, flying)
        candidates = [*self.residency.admitted(heads), *self.calls.prepared]
        budget = self._dispatch.pace.budget(self._budget, candidates, self.spaces)
        return pick(candidates, budget, self.pool.page_size)

    async def _put_on_device(self, ready: Sequence[Slice], opened: int, began: float, chosen: float) -> None:
        placed = time.perf_counter()
        step = batch.build(ready, self.pool.page_size)
        times = self.statistics.forming(began, chosen, placed, time.perf_counter())
        self.calls.launch([part.work for part in ready if part.last])
        try:
            flight = await self._device.launch(step, opened, partial(self._landed, times))
        except Exception as error:
            self._crash(step, error)
            return
        now = time.perf_counter()
        self._dispatch.pace.launched(step.inputs.counts.rows, step.singles, now)
        self.statistics.launched(times, step, not self._flights, now)
        self._flights.append((flight, times))
        self.calls.predict([part.work for part in ready if part.last and part.work.confirmed])

    def _landed(self, times: Step) -> None:
        """The device is done with a step."""
        self.statistics.landed(times, time.perf_counter())
        self._wake.set()

    async def _act(self, work: Work) -> None:
        assert work.action is not None
        try:
            await work.action()
        except Exception as error:
            self.calls.fail(work, error)
        else:
            self.calls.finish(work, ())

    def _land(self, flight: Flight, times: Step) -> None:
        """The results of a step that has run."""
        step, began = flight.batch, time.perf_counter()
        self._dispatch.pace.landed(began)
        try:
            results = flight.results()
        except Exception as error:
            self._crash(step, error)
            return
        for part in step.slices:
            part.work.flying -= 1
            context = part.work.context
            if context is not None and not context.retired:
                if self._adoption is not None:
                    self.prefixes.insert(context)
                part.work.space.usage.released_pages += self.behind.release(context, self.calls.everything)
        self.losses.landed()
        self._dispatch.answered(step, self.calls.foreseen, time.perf_counter())
        for readout, tensors in zip(step.readouts, results, strict=True):
            work = readout.part.work
            if tensors is None:
                self.calls.refuse(work, not_finite(work, self.facts.name))
            else:
                self.calls.deliver(work, tensors)
        now = time.perf_counter()
        self.statistics.handed_out(times, step, began, now)
        self.statistics.look(self.calls.queues, now)

    def _crash(self, step: batch.Batch, error: Exception) -> None:
        """The step came to nothing: its calls fail, and what they wrote is not to be trusted."""
        for part in step.slices:
            for entry, _ in part.writes:
                self.prefixes.remove(entry.page)
            if part.work.context is not None and part.work.context.state is not None:
                part.work.context.state.lose()
        self.calls.crash(step, error)
        self._note_loss(error)

    def _note_loss(self, error: Exception) -> None:
        """A device that is given up takes what waits with it, and what was left there for others."""
        if self.losses.failed(error):
            self.calls.fail_waiting(error)
            self._unshare()
            self.on_lost()
        self._reopened.notice()

    def _unshare(self) -> None:
        self.shared.clear()
        while self.exports:
            self.pool.give_back(self.exports.popitem()[1])

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
        return self.contents.page_states

    @property
    def slot_states(self) -> tuple[snapshot.PageState, ...]:
        """What the bytes of a slot of recurrent state are; none where the model has no such."""
        return () if self.slot_contents is None else self.slot_contents.page_states
