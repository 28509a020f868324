"""The Backend protocol on Vulkan: weights and states on the device, Programs recorded once, a step one submit."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pie_edge.backend import BytesLike, Limits, WeightSource, in_thread
from pie_edge.backends.shared.weights import Weight, supports
from pie_edge.backends.vulkan import selftest, tune
from pie_edge.backends.vulkan.compiler import Compiler
from pie_edge.backends.vulkan.device import Facts, open_gpu
from pie_edge.backends.vulkan.download import Download
from pie_edge.backends.vulkan.executable import Flight, Recorded
from pie_edge.backends.vulkan.loader import Loader
from pie_edge.backends.vulkan.lower import KINDS
from pie_edge.backends.vulkan.memory import Region
from pie_edge.backends.vulkan.remembered import Passed
from pie_edge.backends.vulkan.session import Session
from pie_edge.backends.vulkan.tuning import Tuning, default_tuning
from pie_edge.backends.vulkan.waiting import Waiter
from pie_edge.errors import DeviceLost, Unsupported, UsageError
from pie_edge.program.encodings import DType
from pie_edge.program.nodes import PREFIX
from pie_edge.program.ops import Program, Role, Value

PROGRAMS = 8
"""Compiled Programs, as large as the largest, that a footprint has room for: a session has a few more, and smaller ones."""

__all__ = ["Options", "VulkanBackend", "open_vulkan"]


@dataclass(eq=False)
class State:
    """What ``allocate`` gives. After a lost device it lies elsewhere, zeroed."""

    nbytes: int
    role: Role
    region: Region


@dataclass(eq=False)
class LoadedWeight:
    """What ``load`` gives. Its source is kept: it is read again after a lost device."""

    value: Value
    source: WeightSource
    weight: Weight


@dataclass(eq=False)
class VulkanExecutable:
    program: Program
    buffers: Mapping[str, Any]
    recorded: Recorded


@dataclass(eq=False)
class VulkanTicket:
    executable: VulkanExecutable
    live: Live
    flight: Flight | None
    """None if the device was lost when the run was enqueued."""


@dataclass(eq=False)
class VulkanDownload:
    live: Live
    flight: Download | None
    """None if the device was lost when it was enqueued."""


@dataclass(frozen=True)
class Options:
    """How a device is opened; 0 and "" leave it to the device. ``max_binding`` caps what the device says of itself."""

    device: str = ""
    memory: int = 0
    exact: bool = False
    cache_dir: Path | None = None
    tuning: Tuning | None = None
    max_binding: int = 0
    self_test: bool = False
    """Run every kernel once, unless they passed here before."""
    tune: bool = False
    """Measure the variants of the hot kernels, briefly, unless that was done here before."""
    progress: Callable[[int, int, str], None] = lambda done, total, what: None
    """Told of what is done at a first opening alone, and takes seconds."""


class Live:
    """What an open device consists of; it dies when the device is lost."""

    def __init__(self, options: Options) -> None:
        self.closed = False
        gpu = open_gpu(options.device)
        if options.max_binding:
            gpu = replace(gpu, facts=replace(gpu.facts, max_binding=min(options.max_binding, gpu.facts.max_binding)))
        facts = gpu.facts
        memory = min(options.memory or facts.memory, facts.memory)
        self.facts: Facts = facts
        self.session = Session(gpu, memory, options.cache_dir)
        self.tuning: Tuning = options.tuning or self._tuned(options)
        self.loader = Loader(self.session, self.tuning.interleaved, facts.max_binding)
        self.compiler = Compiler(self.session, self.loader, self.tuning, facts.max_binding)
        self.waiter = Waiter(self.session.timeline)
        self._passed = Passed(gpu.facts, self.tuning, options.exact, options.cache_dir)
        if options.self_test and not self._passed.before():
            try:
                options.progress(0, 0, f"testing Vulkan's kernels on {facts.name} (once)")
                selftest.check(facts.name, facts.driver, not options.exact, self._examine)
            except BaseException:
                self.close()
                raise
            self._passed.remember()

    def _tuned(self, options: Options) -> Tuning:
        """What was measured on this device before or, for a first load, in a second or two now. Software is not measured
        unless it is asked for: its defaults were, and its compiler takes longer than what there is to win."""
        found = tune.remembered(self.facts, options.cache_dir)
        default = found or default_tuning(self.facts)
        if found is None and options.tune and options.cache_dir is not None and not self.facts.software:
            options.progress(0, 0, f"measuring variants of Vulkan's kernels on {self.facts.name} (once)")
            default = tune.tune(self.session, default, tune.SHORT_SECONDS)
            tune.remember(self.facts, options.cache_dir, default)
        return default

    def _examine(self, exam: selftest.Examination) -> Mapping[str, memoryview]:
        states = {}
        for name, array in exam.states.items():
            region = self.session.device_buffer(array.nbytes, "the self-test").region()
            self.session.upload(region, memoryview(array.tobytes()))
            states[name] = region
        values = exam.program.values
        weights = {name: self.loader.load(values[name], source) for name, source in exam.sources.items()}
        recorded = self.compiler.compile(exam.program, states, weights)
        flight = recorded.run({"step": exam.block})
        self.session.timeline.wait(flight.value)
        outputs = recorded.outputs(flight)
        for region in states.values():
            self.session.free(region.buffer)
        for weight in weights.values():
            self.loader.free(weight)
        return outputs

    def expect(self, weights: Sequence[Value], largest: Program) -> None:
        self.loader.expect(weights)
        self.compiler.reserve(largest)

    def drain(self) -> None:
        """Wait until nothing runs any more, for whatever reason."""
        with suppress(DeviceLost):
            self.session.timeline.drain()

    def close(self) -> None:
        self.closed = True
        self.waiter.close()
        self.drain()
        with suppress(DeviceLost):
            self.session.pipelines.save()
        self.session.close()


async def open_vulkan(
    device: str = "",
    *,
    threads: int = 0,
    memory: int = 0,
    exact: bool = False,
    cache_dir: Path | None = None,
    tune: bool = True,
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> VulkanBackend:
    """Open a device by its name. ``threads`` is the driver's own affair. Pipelines, variants and the self-test's result are
    kept in ``cache_dir``; ``tune`` lets a first load measure variants. ``progress`` is told of what a first opening does.
    Raises BackendUnavailable."""
    if memory < 0:
        raise UsageError(f"the Vulkan backend was asked for {memory} bytes; give 0 for what the device has")
    options = Options(
        device, memory=memory, exact=exact, cache_dir=cache_dir, self_test=True, tune=tune, progress=progress
    )
    return VulkanBackend(options, await in_thread(Live, options))


class VulkanBackend:
    """See ``pie_edge.backend.Backend``. When the device is lost ``read`` opens it again, with all weights and with zeroed
    states, and raises DeviceLost: what ran is gone, what comes next is served."""

    def __init__(self, options: Options, live: Live) -> None:
        self._options = options
        self._live = live
        self._states: list[State] = []
        self._weights: list[LoadedWeight] = []
        self._executables: weakref.WeakSet[VulkanExecutable] = weakref.WeakSet()
        self._expected: tuple[list[Value], Program] | None = None
        self._closed = False
        self._reading = 0
        """Readers that look at the device: closing lets them end."""
        self._work = asyncio.Lock()
        """Held while memory or Programs change: in a worker thread, one at a time."""

    @property
    def limits(self) -> Limits:
        facts = self._live.facts
        return Limits(
            backend="vulkan",
            device=facts.name,
            memory=self._live.session.memory.limit,
            max_binding=facts.max_binding,
            kinds=KINDS,
            supports=partial(supports, odd=self._live.tuning.odd_bits),
            kv_dtype=DType.F32 if self._options.exact else DType.F16,
            software=facts.software,
        )

    def footprint(self, states: Sequence[int], weights: Sequence[Value], largest: Program | None) -> int:
        live = self._live
        buffers = [*states, *live.loader.buffer_sizes(weights)]
        if largest is not None:
            buffers += [live.compiler.arena_bytes(largest), *live.compiler.own_bytes(largest) * PROGRAMS]
        return live.session.settled() + sum(map(live.session.memory.rounded, buffers))

    async def expect(self, weights: Sequence[Value], largest: Program) -> None:
        self._expected = list(weights), largest
        async with self._work:
            await in_thread(self._live.expect, *self._expected)

    async def allocate(self, nbytes: int, role: Role) -> State:
        async with self._work:
            state = State(nbytes, role, await in_thread(self._zeroed, self._live, nbytes, role))
        self._states.append(state)
        return state

    def free(self, buffer: State | LoadedWeight) -> None:
        """After the runs before it."""
        if isinstance(buffer, State):
            self._states.remove(buffer)
            self._live.session.free(buffer.region.buffer)
        else:
            self._weights.remove(buffer)
            self._live.loader.free(buffer.weight)

    def write(self, buffer: State, data: BytesLike, offset: int = 0) -> None:
        given = memoryview(data).cast("B")
        if offset < 0 or offset + len(given) > buffer.nbytes:
            raise ValueError(f"{len(given)} bytes at {offset} don't fit a buffer of {buffer.nbytes}")
        self._live.session.upload(buffer.region.part(offset, len(given)), given)

    def download(self, spans: Sequence[tuple[State, int, int]]) -> VulkanDownload:
        for buffer, offset, nbytes in spans:
            if offset < 0 or nbytes < 0 or offset + nbytes > buffer.nbytes:
                raise ValueError(f"{nbytes} bytes at {offset} aren't all in a buffer of {buffer.nbytes}")
        if self._closed:
            raise DeviceLost("a download was asked for after the Vulkan backend was closed")
        regions = [buffer.region.part(offset, nbytes) for buffer, offset, nbytes in spans]
        try:
            return VulkanDownload(self._live, Download(self._live.session, regions))
        except DeviceLost:
            return VulkanDownload(self._live, None)

    async def load(self, value: Value, source: WeightSource) -> LoadedWeight:
        async with self._work:
            weight = await in_thread(self._live.loader.load, value, source)
        loaded = LoadedWeight(value, source, weight)
        self._weights.append(loaded)
        return loaded

    async def compile(self, program: Program, buffers: Mapping[str, Any]) -> VulkanExecutable:
        unknown = sorted({op.kind for op in program.ops if not op.kind.startswith(PREFIX)} - KINDS)
        if unknown:
            raise Unsupported(
                f"{program.name} needs op {unknown[0]!r}; the Vulkan backend has {', '.join(sorted(KINDS))}"
            )
        async with self._work:
            recorded = await in_thread(_compile, self._live, program, buffers)
        executable = VulkanExecutable(program, buffers, recorded)
        self._executables.add(executable)
        return executable

    def run(self, executable: VulkanExecutable, inputs: Mapping[str, BytesLike]) -> VulkanTicket:
        if self._closed:
            raise DeviceLost(f"{executable.program.name}: the Vulkan backend was closed")
        try:
            flight = executable.recorded.run(inputs)
        except DeviceLost:
            return VulkanTicket(executable, self._live, None)
        return VulkanTicket(executable, self._live, flight)

    def poll(self, ticket: VulkanTicket | VulkanDownload) -> bool:
        """Also true where ``read`` would raise DeviceLost at once."""
        if ticket.flight is None or ticket.live is not self._live or ticket.live.closed:
            return True
        try:
            return self._live.session.timeline.reached() >= ticket.flight.value
        except DeviceLost:
            return True

    async def read(self, ticket: VulkanTicket | VulkanDownload) -> Mapping[str, memoryview]:
        flight = ticket.flight
        name = "a download" if isinstance(ticket, VulkanDownload) else ticket.executable.program.name
        try:
            if ticket.live.closed and ticket.live is self._live:
                raise DeviceLost(f"{name}: the Vulkan backend was closed")
            if flight is None or ticket.live is not self._live:
                raise DeviceLost(f"{ticket.live.facts.name} was lost while {name} ran; run the request again")
            return await self._outputs(ticket)
        except DeviceLost:
            await self._restore(ticket.live)
            raise

    async def _outputs(self, ticket: VulkanTicket | VulkanDownload) -> Mapping[str, memoryview]:
        self._reading += 1
        try:
            assert ticket.flight is not None
            await ticket.live.waiter.wait(ticket.flight.value)
            if isinstance(ticket, VulkanDownload):
                return ticket.flight.outputs()
            return ticket.executable.recorded.outputs(ticket.flight)
        finally:
            self._reading -= 1

    async def close(self) -> None:
        """Finish what is enqueued, and give everything back. Closing again does nothing."""
        async with self._work:
            if not self._closed:
                self._closed = True
                await in_thread(self._live.drain)
                await asyncio.sleep(0)  # readers that were to begin do
                while self._reading:
                    await asyncio.sleep(0.001)
                self._live.closed = True
                await in_thread(self._live.close)

    async def _restore(self, lost: Live) -> None:
        """Open the device again, once for all who notice. What fails here is what ``read`` raises instead."""
        async with self._work:
            if self._live is lost and not self._closed:
                self._live = await in_thread(self._reopened, lost)

    def _reopened(self, lost: Live) -> Live:
        lost.close()
        live = Live(self._options)
        if self._expected is not None:
            live.expect(*self._expected)
        for state in self._states:
            state.region = self._zeroed(live, state.nbytes, state.role)
        for loaded in self._weights:
            loaded.weight = live.loader.load(loaded.value, loaded.source)
        for executable in self._executables:
            executable.recorded = _compile(live, executable.program, executable.buffers)
        return live

    @staticmethod
    def _zeroed(live: Live, nbytes: int, role: Role) -> Region:
        region = live.session.device_buffer(nbytes, f"a {role}").region(0, -(-nbytes // 16) * 16)
        live.session.clear(region)
        return region


def _compile(live: Live, program: Program, buffers: Mapping[str, Any]) -> Recorded:
    used = {
        value.name: buffers[value.name] for value in program.values.values() if value.role in (Role.STATE, Role.WEIGHT)
    }
    states = {name: buffer.region for name, buffer in used.items() if isinstance(buffer, State)}
    weights = {name: buffer.weight for name, buffer in used.items() if isinstance(buffer, LoadedWeight)}
    return live.compiler.compile(program, states, weights)
