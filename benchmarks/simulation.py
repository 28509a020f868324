"""A discrete-event simulation of inferlets on a device, in which the control layer is the real one.

Queues, pages, prefix index, residency, ``pick``, ``build`` and the pace are those of ``pie_edge.control``; only the device
is a cost model (``device_costs``), the inferlets are scripts, and time is a number. What decides is a ``Policy``.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from benchmarks.device_costs import Cost, Load
from pie_edge.control import batch, pages
from pie_edge.control.adoption import Adoption
from pie_edge.control.behind import Behind
from pie_edge.control.pace import Pace
from pie_edge.control.pages import PagePool, WorkingSet
from pie_edge.control.prefix import PrefixIndex
from pie_edge.control.queue import ForwardCall, Placement, Queues, Work
from pie_edge.control.recurrence import StatePool
from pie_edge.control.residency import Residency
from pie_edge.control.scheduler import Budget, pick
from pie_edge.control.space import Request, Space

PAGE, CONTEXT, VOCABULARY = 16, 8192, 49152
BUDGET = Budget(rows=512, sequences=256, sampled=256, entries=2 * CONTEXT, shared_rows=128)
STEPS_IN_FLIGHT = 2
SLICE = 0.001
"""Seconds that guests run in a row, as ``host.schedule`` has it."""


@dataclass(frozen=True, slots=True)
class Script:
    """An inferlet: from ``arrival`` on it forwards a prompt of ``prompt`` tokens, then decides ``tokens`` more, one by one;
    before token i it is away for ``pauses[i]`` seconds, as for a tool."""

    arrival: float
    prompt: int
    tokens: int
    pauses: dict[int, float] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Run:
    """What happened to a script: when it started, and when each token was there."""

    script: Script
    started: float
    space: Space
    context: int
    times: list[float] = field(default_factory=list)
    prepared: Work | None = None
    """The pass that run-ahead put behind its last one."""

    @property
    def first_token(self) -> float:
        return self.times[0] - self.started

    @property
    def gaps(self) -> list[float]:
        return [after - before for before, after in itertools.pairwise(self.times)]


class Policy(Protocol):
    """When a step is formed, and of what."""

    @property
    def ahead(self) -> bool:
        """Whether the pass after a decode is prepared when that is launched, as run-ahead does for programs it predicts."""

    def hold(self, sim: Simulation) -> float | None:
        """Seconds until a step may be formed if nothing changes: 0 is now, None is not before something changes."""

    def select(self, sim: Simulation, heads: list[Work]) -> tuple[list[Work], Budget]:
        """Of the calls that may run, those that the next step may have, and its budget."""


@dataclass(slots=True)
class _Flight:
    step: batch.Batch
    seconds: float


class Simulation:
    """``host`` seconds pass on the host's one thread for each token that an inferlet is told of. As in the host, guests run
    for at most ``SLICE`` before the engine has its turn."""

    def __init__(self, policy: Policy, cost: Cost, host: float = 0.0, pool_pages: int = 1 << 18) -> None:
        self.policy = policy
        self.now = 0.0
        self.queues = Queues()
        self.prepared: list[Work] = []
        self.pace = Pace()
        self.flights: deque[batch.Batch] = deque()
        self.runs: list[Run] = []
        self.alive: set[Space] = set()
        self.steps: list[tuple[float, Load]] = []
        """When each began, and what it had to do."""
        self.on_end: Callable[[Run], None] = lambda run: None
        self.pool = PagePool(pool_pages, PAGE)
        self.residency = Residency(self.pool, PrefixIndex(self.pool))
        self.slots: StatePool | None = None
        self.behind = Behind(self.pool, 0)
        self.adapters: tuple[str, ...] = ()
        self.adoption = Adoption(self.pool, self.residency.index)
        self.context_limit, self.vocabulary = CONTEXT, VOCABULARY
        self.shared: dict[str, WorkingSet] = {}
        self._cost = cost
        self._host = host
        self._woken: deque[Run] = deque()
        self._host_busy = 0.0
        self._device_free = 0.0
        self._alarm = -1.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count(1)
        self._by_space: dict[Space, Run] = {}

    def at(self, time: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, next(self._numbers), action))

    def run(self, until: Callable[[Simulation], bool] = lambda sim: False) -> None:
        """To the end of all scripts, or until a condition holds."""
        while self._events and not until(self):
            self.now = self._events[0][0]
            while self._events and self._events[0][0] <= self.now:
                heapq.heappop(self._events)[2]()
            self._dispatch()

    @property
    def asking(self) -> set[Space]:
        return {work.space for work in (*self.queues, *self.prepared)}

    @property
    def waiting(self) -> list[Work]:
        return [*self.queues.waiting(), *self.prepared]

    # ---- inferlets

    def start(self, script: Script) -> None:
        self.at(max(script.arrival, self.now), lambda: self._begin(script))

    def _begin(self, script: Script) -> None:
        number = next(self._numbers)
        space = Space(f"inferlet {number}", number, number, self, lambda space, reason: None)
        run = Run(script, self.now, space, space.create_working_set(script.prompt + script.tokens))
        self.runs.append(run)
        self.alive.add(space)
        self._by_space[space] = run
        # Prompts differ from their first token on: what is measured is no cache.
        self._ask(run, (number % VOCABULARY, *range(1, script.prompt)), 0)

    def _ask(self, run: Run, tokens: tuple[int, ...], start: int) -> None:
        run.space.submit(ForwardCall(run.context, tokens, start, start + len(tokens), (len(tokens) - 1,)))

    def _ask_next(self, run: Run) -> None:
        if run.prepared is not None:
            self._take_up(run, run.prepared)
        else:
            self._ask(run, (len(run.times),), run.script.prompt + len(run.times) - 1)

    def _wake(self, run: Run) -> None:
        self._woken.append(run)
        if self._host_busy <= self.now:
            self._host_busy = self.now  # a slice begins once all that happens now has happened
            self.at(self.now, self._slice)

    def _slice(self) -> None:
        """Guests run until the slice is over; what they ask is seen at its end."""
        if not self._woken or self._host_busy > self.now:
            return
        count = len(self._woken) if self._host == 0 else min(len(self._woken), max(int(SLICE / self._host), 1))
        guests = [self._woken.popleft() for _ in range(count)]
        self._host_busy = self.now + count * self._host
        self.at(self._host_busy, lambda: self._slice_over(guests))

    def _slice_over(self, guests: Sequence[Run]) -> None:
        for run in guests:
            self._told(run)
        if self._woken:
            self.at(self.now, self._slice)

    def _told(self, run: Run) -> None:
        """An inferlet has heard of its newest token."""
        made = len(run.times)
        if made < run.script.tokens:
            self.at(self.now + run.script.pauses.get(made, 0.0), lambda: self._ask_next(run))
            return
        run.space.close()
        self.alive.discard(run.space)
        del self._by_space[run.space]
        self.on_end(run)

    # ---- the engine's part

    def enqueue(self, space: Space, request: Request) -> Work:
        """As the engine takes a call."""
        work = self._work(space, request)
        self._admit(work)
        self.queues.push(work)
        return work

    def changed(self, context: WorkingSet) -> None: ...

    def _work(self, space: Space, request: Request) -> Work:
        pages.begin_use(request.context, request.placement.entries)
        return Work(
            space=space,
            queue=request.queue,
            tokens=request.tokens,
            rows=request.rows,
            placement=request.placement,
            context=request.context,
            epilogue=None,
            parameters=(),
            future=cast(Any, None),
            arrival=next(self._numbers),
        )

    def _admit(self, work: Work) -> None:
        assert work.context is not None
        work.context.pending += 1
        work.space.waiting += 1

    def _predict(self, work: Work) -> None:
        """As run-ahead does, once ``work`` is launched and was asked for. Its last token's pass is foreseen as the last."""
        run = self._by_space[work.space]
        place = work.placement.places[-1] + 1
        last = run.script.prompt + run.script.tokens - 1
        if not self.policy.ahead or run.prepared is not None or len(work.tokens) > 1 or place >= last:
            return
        placement = Placement(work.placement.entries, (place,), (place,))
        ahead = self._work(work.space, Request(work.queue, (0,), (0,), placement, work.context, None, ()))
        ahead.confirmed, ahead.adopted = False, 0
        run.prepared = ahead
        self.prepared.append(ahead)

    def _take_up(self, run: Run, ahead: Work) -> None:
        run.prepared, ahead.confirmed = None, True
        self._admit(ahead)
        if not ahead.done:
            self.prepared.remove(ahead)
            self.queues.push(ahead)
            return
        self.residency.mark(ahead)
        self._predict(ahead)
        if not ahead.flying:
            self._deliver(ahead)

    def _dispatch(self) -> None:
        if self._host_busy > self.now:
            return
        while len(self.flights) < STEPS_IN_FLIGHT and self.waiting:
            wait = self.policy.hold(self)
            if wait is None or wait > 0:
                if wait is not None and not self.now < self._alarm <= self.now + wait:
                    self._alarm = self.now + wait
                    self.at(self._alarm, lambda: None)
                return
            if not self._launch():
                return

    def _launch(self) -> bool:
        flying = [part for flight in self.flights for part in flight.slices]
        heads = self.adoption.ready(self.queues.heads(), flying)
        slices = pick(*self.policy.select(self, [*heads, *self.prepared]), PAGE)
        for part in slices:
            self.pool.release(copy.source for copy in self.residency.claim(part))
            part.work.launch(part.count)
        if not slices:
            return False
        self.prepared = [work for work in self.prepared if not work.flying]
        step = batch.build(slices, PAGE)
        load = Load.of(step)
        began = max(self.now, self._device_free)
        self._device_free = began + self._cost.seconds(load)
        self.steps.append((began, load))
        self.flights.append(step)
        self.pace.launched(load.rows, step.singles, self.now)
        self.at(self._device_free, self._land)
        for part in slices:
            if part.last and part.work.confirmed:
                self._predict(part.work)
        return True

    def _land(self) -> None:
        if self._host_busy > self.now:  # the loop's thread is a guest's
            self.at(self._host_busy, self._land)
            return
        step = self.flights.popleft()
        self.pace.landed(self.now)
        for part in step.slices:
            part.work.flying -= 1
            assert part.work.context is not None
            self.residency.index.insert(part.work.context)
            if part.last:
                pages.end_use(self.pool, part.work.context, part.work.placement.entries)
                if part.work.confirmed:
                    self._deliver(part.work)

    def _deliver(self, work: Work) -> None:
        assert work.context is not None
        self.queues.finish(work)
        pages.end_call(self.pool, work.context)
        work.space.waiting -= 1
        run = self._by_space[work.space]
        run.times.append(self.now)
        self._wake(run)
