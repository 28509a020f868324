"""A compiled Program: its launches captured as a graph for each kind of step, and the slots through which steps go in and out.

A slot has pinned memory that a run fills with the inputs, and pinned memory for the outputs. A run costs Python one copy of
the inputs, one graph launch, and one copy of the outputs where there are any; ``together.py`` has runs of several Programs as
one launch. A graph's grids are fixed: they are made for counts rounded up, and kernels stop at the true ones, which they read.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from ctypes import c_void_p
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from pie_edge.backend import BytesLike
from pie_edge.backends.cuda import graphs
from pie_edge.backends.cuda.launch import Launch
from pie_edge.backends.cuda.memory import Buffer, Pinned
from pie_edge.backends.cuda.session import Session
from pie_edge.backends.shared.grid import Count
from pie_edge.backends.shared.inputs import Counts
from pie_edge.backends.shared.slots import Flight, Slot, Slotted, Wiring


@dataclass(frozen=True, slots=True)
class Steps:
    """Those of one shape: what they launch, and the counts that these launches' grids name."""

    launches: Sequence[Launch]
    counts: Sequence[str]


@dataclass(frozen=True, eq=False, slots=True)
class Graph:
    """Launches with grids for these counts, captured."""

    launches: Sequence[Launch]
    counts: Counts
    handle: c_void_p


@dataclass(eq=False)
class PinnedSlot(Slot):
    upload: Pinned
    readback: Pinned | None


class Step(NamedTuple):
    """A slot that has a run's inputs, and what is launched for it."""

    slot: PinnedSlot
    graph: Graph


class Recorded(Slotted[Buffer, Launch, PinnedSlot]):
    """``capacities`` are the most that a step's counts may be."""

    def __init__(self, session: Session, wiring: Wiring[Buffer, Launch], capacities: Mapping[str, int]) -> None:
        super().__init__(session.free, session.timeline, wiring)
        self._session = session
        self._capacities = capacities
        self._steps: dict[Hashable, Steps] = {}
        self._graphs: dict[Hashable, Graph] = {}
        self._latest: tuple[Counts, Graph] | None = None
        gpu = session.gpu
        self._copy_in, self._launch, self._copy_out = map(
            gpu.raw, ("cuMemcpyHtoDAsync_v2", "cuGraphLaunch", "cuMemcpyDtoHAsync_v2")
        )

    @property
    def name(self) -> str:
        return self._wiring.name

    @property
    def slots(self) -> Sequence[PinnedSlot]:
        """Those that it has, and will have."""
        return self._slots

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
        return self.launch(self.fill(self._free_slot(), given))

    def is_free(self, number: int) -> bool:
        """Whether its slot of this number, which there need not be yet, may be filled. Raises DeviceLost."""
        return number >= len(self._slots) or self._is_free(self._slots[number])

    def slot(self, number: int) -> PinnedSlot:
        while number >= len(self._slots):
            self._slots.append(self._new_slot())
        return self._slots[number]

    def fill(self, slot: PinnedSlot, given: Mapping[str, BytesLike]) -> Step:
        """Of a free slot, a step that is to be enqueued next. Raises ValueError for inputs that don't fit."""
        return Step(slot, self._graph_of(self._wiring.inputs.fill(slot.upload.view, given)))

    def launch(self, step: Step) -> Flight[PinnedSlot]:
        """Enqueue it. Raises as ``run`` does."""
        session, slot = self._session, step.slot
        timeline, back = session.timeline, self._back(slot)
        session.gpu.enter()
        with session.lock:
            stream = timeline.stream
            status = self._copy_in(*self._forth(slot), stream) or self._launch(step.graph.handle, stream)
            if back is not None:
                status = status or self._copy_out(*back, stream)
            try:
                timeline.checked(status, f"run {self.name}")
            finally:
                # Also where there is no memory for a launch: the copy before it still reads the slot.
                slot.last = timeline.mark()
        return self._flight(slot)

    def enqueue(self, step: Step, stream: c_void_p) -> None:
        """Its copies and launches on a stream that is captured: they read the slot whenever that is launched."""
        gpu, forth, back = self._session.gpu, self._forth(step.slot), self._back(step.slot)
        if forth[-1]:
            gpu.call("capture a step", "cuMemcpyHtoDAsync_v2", *forth, stream)
        self._enqueue(step.graph.launches, step.graph.counts, stream)
        if back is not None:
            gpu.call("capture a step", "cuMemcpyDtoHAsync_v2", *back, stream)

    def enqueued(self, step: Step, value: int) -> Flight[PinnedSlot]:
        """It was, and is done when the timeline reaches ``value``."""
        step.slot.last = value
        return self._flight(step.slot)

    def _forth(self, slot: PinnedSlot) -> tuple[int, int, int]:
        """To which address the inputs are copied, from which, and how many bytes."""
        inbox = self._wiring.inbox
        return inbox.buffer.address + inbox.offset, slot.upload.address, self._wiring.inputs.nbytes

    def _back(self, slot: PinnedSlot) -> tuple[int, int, int] | None:
        """The same of outputs, if there are any."""
        outbox = self._wiring.outbox
        if slot.readback is None or outbox is None:
            return None
        return slot.readback.address, outbox.buffer.address + outbox.offset, self._wiring.outputs.nbytes

    def _graph_of(self, counts: Counts) -> Graph:
        """The counts are mostly those of the step before."""
        if self._latest is None or counts != self._latest[0]:
            self._latest = counts, self._graph(counts)
        return self._latest[1]

    def _graph(self, counts: Counts) -> Graph:
        shape = self._wiring.plan.shape_of(counts)
        steps = self._of(shape)
        grids = self._rounded({name: counts[name] for name in steps.counts})
        key = shape, *grids.values()
        if key not in self._graphs:
            handle = self._captured(steps.launches, grids)
            self._graphs[key] = Graph(steps.launches, grids, handle)
            self._owned.others.append(self._session.keep(handle))
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
        for launch in launches:
            self._session.function_of(launch)
        return graphs.captured(self._session.gpu, partial(self._enqueue, launches, counts))

    def _enqueue(self, launches: Sequence[Launch], counts: Counts, stream: c_void_p) -> None:
        for launch in launches:
            x, y, z = (extent.value(counts) if isinstance(extent, Count) else extent for extent in launch.grid)
            if x and y and z:
                self._session.enqueue(launch, (x, y, z), stream)

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
