"""The Backend protocol over a device of a graphics API: what is on it, what runs, and what happens when it is lost."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from pie_edge.backend import BytesLike, Limits, Stop, WeightSource, in_thread
from pie_edge.backends.shared.first_step import FirstSteps
from pie_edge.backends.shared.region import Region
from pie_edge.errors import BackendError, DeviceLost, Unsupported
from pie_edge.program.encodings import DType, Encoding
from pie_edge.program.nodes import PREFIX
from pie_edge.program.ops import Program, Role, Value

PROGRAMS = 8
"""Compiled Programs, as large as the largest, that a footprint has room for: a session has a few more, and smaller ones."""


class Flight(Protocol):
    """Something enqueued: done when the device has reached this number."""

    @property
    def value(self) -> int: ...


class Recorded(Protocol):
    """A Program on the device; it dies with it."""

    def run(self, given: Mapping[str, BytesLike]) -> Any: ...

    def outputs(self, flight: Any) -> Mapping[str, memoryview]: ...


class Live(Protocol):
    """An open device with everything on it; it dies when the device is lost. Sizes are bytes. Methods may raise DeviceLost."""

    closed: bool

    @property
    def lost(self) -> bool:
        """Whether nothing can run any more, also where what ran ended with another error than DeviceLost."""

    @property
    def name(self) -> str: ...

    @property
    def software(self) -> bool: ...

    @property
    def memory_limit(self) -> int: ...

    @property
    def scarce(self) -> str:
        """See ``Limits``."""

    @property
    def max_binding(self) -> int: ...

    def supports(self, encoding: Encoding) -> bool:
        """Whether its kernels read weights in this encoding."""

    def footprint(
        self, buffers: Sequence[int], weights: Sequence[Value], largest: Program | None, count: int, memory: int
    ) -> int:
        """Of these buffers, the weights, and ``count`` Programs like the largest, beside what is in use; as if there were so much
        ``memory``, if it isn't 0."""

    def expect(self, weights: Sequence[Value], largest: Program) -> None: ...

    def zeroed(self, nbytes: int, role: Role) -> Region[Any]: ...

    def free(self, region: Region[Any]) -> None: ...

    def upload(self, region: Region[Any], data: memoryview) -> None: ...

    def download(self, regions: Sequence[Region[Any]]) -> Any:
        """A Flight, whose ``outputs()`` are the pieces by number."""

    def load(self, value: Value, source: WeightSource, stop: Stop) -> Any:
        """A weight as its kernels read it: only the device looks inside."""

    def unload(self, weight: Any) -> None: ...

    def compile(self, program: Program, states: Mapping[str, Region[Any]], weights: Mapping[str, Any]) -> Recorded: ...

    def reached(self) -> int:
        """The last number that is done."""

    async def wait(self, value: int) -> None: ...

    def drain(self) -> None:
        """Wait until nothing runs any more, for whatever reason."""

    def close(self) -> None: ...


LiveT = TypeVar("LiveT", bound=Live)


@dataclass(eq=False)
class State:
    """What ``allocate`` gives. After a lost device it lies elsewhere, zeroed."""

    nbytes: int
    role: Role
    region: Region[Any]


@dataclass(eq=False)
class LoadedWeight:
    """What ``load`` gives. Its source is kept: it is read again after a lost device."""

    value: Value
    source: WeightSource
    weight: Any
    """None where loading it again failed."""


@dataclass(eq=False)
class DeviceExecutable:
    program: Program
    buffers: Mapping[str, Any]
    recorded: Any
    ran: bool = False
    """It isn't its first run that comes next."""


@dataclass(eq=False)
class DeviceTicket:
    executable: DeviceExecutable
    live: Live
    flight: Any
    """None if the device was lost when the run was enqueued."""
    reason: str = ""
    """What it was lost by, then."""


@dataclass(eq=False)
class DeviceDownload:
    live: Live
    flight: Any
    """None if the device was lost when it was enqueued."""
    reason: str = ""


class DeviceBackend(Generic[LiveT]):
    """See ``pie_edge.backend.Backend``. When the device is lost ``read`` opens it again, with all weights and with zeroed
    states, and raises DeviceLost: what ran is gone, what comes next is served. ``reopen`` opens the device as it was, unless
    it is given up; without it a lost device stays lost."""

    id: str
    title: str
    kinds: frozenset[str]

    def __init__(
        self,
        live: LiveT,
        exact: bool,
        progress: Callable[[int, int, str], None],
        reopen: Callable[[Stop], LiveT] | None,
    ) -> None:
        self._live = live
        self._reopen = reopen
        self._exact = exact
        self._first = FirstSteps(progress)
        self._states: list[State] = []
        self._weights: list[LoadedWeight] = []
        self._executables: weakref.WeakSet[DeviceExecutable] = weakref.WeakSet()
        self._expected: tuple[list[Value], Program] | None = None
        self._closed = False
        self._opened = 1
        self._reading = 0
        """Readers that look at the device: closing lets them end."""
        self._work = asyncio.Lock()
        """Held while memory or Programs change: in a worker thread, one at a time."""

    @property
    def limits(self) -> Limits:
        live = self._live
        return Limits(
            backend=self.id,
            device=live.name,
            memory=live.memory_limit,
            max_binding=live.max_binding,
            kinds=self.kinds,
            supports=live.supports,
            kv_dtype=DType.F32 if self._exact else DType.F16,
            software=live.software,
            sticky=self._reopen is None,
            opened=self._opened,
            scarce=live.scarce,
        )

    def footprint(
        self, states: Sequence[int], weights: Sequence[Value], largest: Program | None, memory: int = 0
    ) -> int:
        return self._live.footprint(states, weights, largest, PROGRAMS, memory)

    async def expect(self, weights: Sequence[Value], largest: Program) -> None:
        self._expected = list(weights), largest
        async with self._work:
            await in_thread(self._live.expect, *self._expected)

    async def allocate(self, nbytes: int, role: Role) -> State:
        async with self._work:
            state = State(nbytes, role, await in_thread(self._live.zeroed, nbytes, role))
        self._states.append(state)
        return state

    def free(self, buffer: State | LoadedWeight) -> None:
        """After the runs before it."""
        if isinstance(buffer, State):
            self._states.remove(buffer)
            self._live.free(buffer.region)
        else:
            self._weights.remove(buffer)
            if buffer.weight is not None:
                self._live.unload(buffer.weight)

    def write(self, buffer: State, data: BytesLike, offset: int = 0) -> None:
        given = memoryview(data).cast("B")
        if offset < 0 or offset + len(given) > buffer.nbytes:
            raise ValueError(f"{len(given)} bytes at {offset} don't fit a buffer of {buffer.nbytes}")
        self._live.upload(buffer.region.part(offset, len(given)), given)

    def download(self, spans: Sequence[tuple[State, int, int]]) -> DeviceDownload:
        for buffer, offset, nbytes in spans:
            if offset < 0 or nbytes < 0 or offset + nbytes > buffer.nbytes:
                raise ValueError(f"{nbytes} bytes at {offset} aren't all in a buffer of {buffer.nbytes}")
        if self._closed:
            raise DeviceLost(f"a download was asked for after the {self.title} backend was closed")
        regions = [buffer.region.part(offset, nbytes) for buffer, offset, nbytes in spans]
        try:
            return DeviceDownload(self._live, self._live.download(regions))
        except DeviceLost as error:
            return DeviceDownload(self._live, None, str(error))

    async def load(self, value: Value, source: WeightSource) -> LoadedWeight:
        stop = Stop()
        async with self._work:
            weight = await in_thread(self._live.load, value, source, stop, stop=stop)
        loaded = LoadedWeight(value, source, weight)
        self._weights.append(loaded)
        return loaded

    async def compile(self, program: Program, buffers: Mapping[str, Any]) -> DeviceExecutable:
        unknown = sorted({op.kind for op in program.ops if not op.kind.startswith(PREFIX)} - self.kinds)
        if unknown:
            there = ", ".join(sorted(self.kinds))
            raise Unsupported(f"{program.name} needs op {unknown[0]!r}; the {self.title} backend has {there}")
        async with self._work:
            recorded = await in_thread(_compile, self._live, program, buffers)
        executable = DeviceExecutable(program, buffers, recorded)
        self._executables.add(executable)
        return executable

    def run(self, executable: DeviceExecutable, inputs: Mapping[str, BytesLike]) -> DeviceTicket:
        (ticket,) = self._enqueued([executable], lambda: [executable.recorded.run(inputs)])
        return ticket

    def _enqueued(
        self, executables: Sequence[DeviceExecutable], enqueue: Callable[[], Sequence[Any]]
    ) -> list[DeviceTicket]:
        """Of the flights that ``enqueue`` gives, one for each executable."""
        for executable in executables:
            if self._closed:
                raise DeviceLost(f"{executable.program.name}: the {self.title} backend was closed")
            if not executable.ran and executable.program.by_role(Role.OUTPUT):
                self._first.begin(self._live.name)
            executable.ran = True
        try:
            flights = enqueue()
        except DeviceLost as error:
            return [DeviceTicket(executable, self._live, None, str(error)) for executable in executables]
        return [DeviceTicket(one, self._live, flight) for one, flight in zip(executables, flights, strict=True)]

    def poll(self, ticket: DeviceTicket | DeviceDownload) -> bool:
        """Also true where ``read`` would raise DeviceLost at once."""
        if ticket.flight is None or ticket.live is not self._live or ticket.live.closed:
            return True
        try:
            return bool(self._live.reached() >= ticket.flight.value)
        except DeviceLost:
            return True

    async def read(self, ticket: DeviceTicket | DeviceDownload) -> Mapping[str, memoryview]:
        name = "a download" if isinstance(ticket, DeviceDownload) else ticket.executable.program.name
        try:
            if ticket.live.closed and ticket.live is self._live:
                raise DeviceLost(f"{name}: the {self.title} backend was closed")
            if ticket.flight is None or ticket.live is not self._live:
                why = f" ({ticket.reason})" if ticket.reason else ""
                raise DeviceLost(f"{ticket.live.name} was lost while {name} ran{why}; run the request again")
            return await self._outputs(ticket)
        except BackendError as error:
            if isinstance(error, DeviceLost) or ticket.live.lost:
                await self._restore(ticket.live)
            raise

    async def _outputs(self, ticket: DeviceTicket | DeviceDownload) -> Mapping[str, memoryview]:
        self._reading += 1
        try:
            await ticket.live.wait(ticket.flight.value)
            found: Mapping[str, memoryview]
            if isinstance(ticket, DeviceDownload):
                found = ticket.flight.outputs()
            else:
                found = ticket.executable.recorded.outputs(ticket.flight)
            return found
        finally:
            self._first.end()
            self._reading -= 1

    async def close(self) -> None:
        """Finish what is enqueued, and give everything back. Closing again does nothing."""
        async with self._work:
            if not self._closed:
                self._closed = True
                self._first.end()
                await in_thread(self._live.drain)
                await asyncio.sleep(0)  # readers that were to begin do
                while self._reading:
                    await asyncio.sleep(0.001)
                self._live.closed = True
                await in_thread(self._live.close)

    async def _restore(self, lost: Live) -> None:
        """Open the device again, once for all who notice. What fails here is what ``read`` raises instead."""
        async with self._work:
            if self._reopen is not None and self._live is lost and not self._closed:
                stop = Stop()
                self._live = await in_thread(self._reopened, self._reopen, lost, stop, stop=stop)
                self._opened += 1

    def _reopened(self, reopen: Callable[[Stop], LiveT], lost: Live, stop: Stop) -> LiveT:
        lost.close()
        live = reopen(stop)
        try:
            self._refill(live, stop)
        except BaseException:
            live.close()
            raise
        return live

    def _refill(self, live: LiveT, stop: Stop) -> None:
        if self._expected is not None:
            live.expect(*self._expected)
        for state in self._states:
            state.region = live.zeroed(state.nbytes, state.role)
        for loaded in self._weights:
            # Not both at once, where memory is the host's to give back.
            loaded.weight = None
            loaded.weight = live.load(loaded.value, loaded.source, stop)
        for executable in self._executables:
            executable.recorded = _compile(live, executable.program, executable.buffers)


async def open_live(make: Callable[[Stop], LiveT]) -> LiveT:
    """What ``make`` gives in a worker thread. Who is cancelled meanwhile leaves no device open."""
    made: list[LiveT] = []
    stop = Stop()
    try:
        await in_thread(lambda: made.append(make(stop)), stop=stop)
    except BaseException:
        for live in made:
            await in_thread(live.close)
        raise
    return made[0]


def _compile(live: Live, program: Program, buffers: Mapping[str, Any]) -> Recorded:
    used = {
        value.name: buffers[value.name] for value in program.values.values() if value.role in (Role.STATE, Role.WEIGHT)
    }
    states = {name: buffer.region for name, buffer in used.items() if isinstance(buffer, State)}
    weights = {name: buffer.weight for name, buffer in used.items() if isinstance(buffer, LoadedWeight)}
    return live.compile(program, states, weights)
