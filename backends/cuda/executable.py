"""A compiled Program: its launches captured as a graph for each kind of step, and the slots through which steps go in and out.

A slot has pinned memory that a run fills with the inputs, and pinned memory for the outputs. A run costs Python one copy of
the inputs, one graph launch, and one copy of the outputs where there are any. A graph's grids are fixed: they are made for
counts rounded up, and kernels stop at the true ones, which they read.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from ctypes import byref, c_void_p
from dataclasses import dataclass
from functools import partial

from pie_edge.backend import BytesLike
from pie_edge.backends.cuda.device import Gpu
from pie_edge.backends.cuda.launch import Launch
from pie_edge.backends.cuda.memory import Buffer, Pinned
from pie_edge.backends.cuda.session import Session
from pie_edge.backends.shared.grid import Count
from pie_edge.backends.shared.inputs import Counts
from pie_edge.backends.shared.slots import Flight, Slot, Slotted, Wiring

_THREAD_LOCAL = 1
"""Capturing concerns the capturing thread alone."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Those of one shape: what they launch, and the counts that these launches' grids name."""

    launches: Sequence[Launch]
    counts: Sequence[str]


@dataclass(eq=False)
class PinnedSlot(Slot):
    upload: Pinned
    readback: Pinned | None


class Recorded(Slotted[Buffer, Launch, PinnedSlot]):
    """``capacities`` are the most that a step's counts may be."""

    def __init__(self, session: Session, wiring: Wiring[Buffer, Launch], capacities: Mapping[str, int]) -> None:
        super().__init__(session.free, session.timeline, wiring)
        self._session = session
        self._capacities = capacities
        self._steps: dict[Hashable, Steps] = {}
        self._graphs: dict[Hashable, c_void_p] = {}
        self._latest: tuple[Counts, c_void_p] | None = None
        gpu = session.gpu
        self._copy_in, self._launch, self._copy_out = map(
            gpu.raw, ("cuMemcpyHtoDAsync_v2", "cuGraphLaunch", "cuMemcpyDtoHAsync_v2")
        )

    def prepare(self, likely: Sequence[Counts]) -> None:
        """Capture these steps, and make a slot: compiles whatever has not been compiled yet."""
        shapes = dict.fromkeys(map(self._wiring.plan.shape_of, likely))
        self._session.prepare(launch.kernel for shape in shapes for launch in self._of(shape).launches)
        for counts in likely:
            self._graph(counts)
        if not self._slots:
            self._slots.append(self._new_slot())

    def run_slowly(self, given: Mapping[str, BytesLike], between: Callable[[int, int], None]) -> Flight[PinnedSlot]:
        """As ``run``, but waits for its end, which ``between`` hears of: a graph is one launch."""
        flight = self.run(given)
        self._session.timeline.drain()
        between(1, 1)
        return flight

    def run(self, given: Mapping[str, BytesLike]) -> Flight[PinnedSlot]:
        """Enqueue a step. Raises DeviceLost, and OutOfMemory where the driver has none left for it."""
        slot, wiring, session = self._free_slot(), self._wiring, self._session
        graph = self._graph_of(wiring.inputs.fill(slot.upload.view, given))
        timeline = session.timeline
        session.gpu.enter()
        with session.lock:
            stream, inbox = timeline.stream, wiring.inbox
            place = inbox.buffer.address + inbox.offset
            status = self._copy_in(place, slot.upload.address, wiring.inputs.nbytes, stream)
            status = status or self._launch(graph, stream)
            if slot.readback is not None and wiring.outbox is not None:
                place = wiring.outbox.buffer.address + wiring.outbox.offset
                status = status or self._copy_out(slot.readback.address, place, wiring.outputs.nbytes, stream)
            try:
                timeline.checked(status, f"run {wiring.name}")
            finally:
                # Also where there is no memory for a launch: the copy before it still reads the slot.
                slot.last = timeline.mark()
        return self._flight(slot)

    def _graph_of(self, counts: Counts) -> c_void_p:
        """The counts are mostly those of the step before."""
        if self._latest is None or counts != self._latest[0]:
            self._latest = counts, self._graph(counts)
        return self._latest[1]

    def _graph(self, counts: Counts) -> c_void_p:
        shape = self._wiring.plan.shape_of(counts)
        steps = self._of(shape)
        grids = self._rounded({name: counts[name] for name in steps.counts})
        key = shape, *grids.values()
        if key not in self._graphs:
            self._graphs[key] = self._captured(steps.launches, grids)
            destroy = partial(_destroy, self._session.gpu, self._graphs[key])
            self._owned.others.append(partial(self._session.retire, destroy))
        return self._graphs[key]

    def _of(self, shape: Hashable) -> Steps:
        if shape not in self._steps:
            launches = self._wiring.plan.launches(shape)
            named = {extent.name for launch in launches for extent in launch.grid if isinstance(extent, Count)}
            self._steps[shape] = Steps(launches, sorted(named))
        return self._steps[shape]

    def _rounded(self, counts: Counts) -> Counts:
        """The next powers of two, at most the Program's capacities; what is given by name stays as it is."""
        most = self._capacities
        found = {}
        for name, count in counts.items():
            found[name] = min(1 << max(count - 1, 0).bit_length(), max(most[name], 1)) if name in most else count
        return found

    def _captured(self, launches: Sequence[Launch], counts: Counts) -> c_void_p:
        """The launches as one graph, ready to be launched."""
        session, gpu = self._session, self._session.gpu
        for launch in launches:
            session.function_of(launch)
        stream = gpu.made("make a stream", "cuStreamCreate", 1)
        try:
            graph = self._capture(launches, counts, stream)
            try:
                return gpu.made("make a graph", "cuGraphInstantiateWithFlags", graph, 0)
            finally:
                gpu.raw("cuGraphDestroy")(graph)
        finally:
            gpu.raw("cuStreamDestroy_v2")(stream)

    def _capture(self, launches: Sequence[Launch], counts: Counts, stream: c_void_p) -> c_void_p:
        """All memory and functions are there already: capturing allocates and loads nothing, which a driver would refuse. It ends
        whatever happens, since what is refused is refused to the whole thread."""
        session, gpu, graph = self._session, self._session.gpu, c_void_p()
        gpu.call("capture a step", "cuStreamBeginCapture_v2", stream, _THREAD_LOCAL)
        try:
            for launch in launches:
                x, y, z = (extent.value(counts) if isinstance(extent, Count) else extent for extent in launch.grid)
                if x and y and z:
                    session.enqueue(launch, (x, y, z), stream)
        except BaseException:
            gpu.raw("cuStreamEndCapture")(stream, byref(graph))
            if graph:
                gpu.raw("cuGraphDestroy")(graph)
            raise
        gpu.call("capture a step", "cuStreamEndCapture", stream, byref(graph))
        return graph

    def _read_back(self, slot: PinnedSlot) -> bytes:
        assert slot.readback is not None
        return bytes(slot.readback.view)

    def _new_slot(self) -> PinnedSlot:
        wiring = self._wiring
        return PinnedSlot(
            self._pinned(max(wiring.inputs.nbytes, 4), f"inputs of {wiring.name}"),
            self._pinned(wiring.outputs.nbytes, f"outputs of {wiring.name}") if wiring.outputs.nbytes else None,
        )

    def _pinned(self, nbytes: int, what: str) -> Pinned:
        made = self._session.pinned(nbytes, what)
        self._owned.others.append(partial(self._session.unpin, made))
        return made


def _destroy(gpu: Gpu, graph: c_void_p) -> None:
    gpu.call("give back a graph", "cuGraphExecDestroy", graph)
