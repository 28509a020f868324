"""A compiled Program: its launches captured as a graph for each kind of step, and the slots through which steps go in and out.

A slot has pinned memory that a run fills with the inputs, and pinned memory for the outputs. A run costs Python one copy of
the inputs, one graph launch, and one copy of the outputs where there are any. A graph's grids are fixed: they are made for
counts rounded up, and kernels stop at the true ones, which they read.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from ctypes import byref, c_void_p
from dataclasses import dataclass
from typing import Any

from pie_edge.backend import BytesLike
from pie_edge.backends.cuda.launch import Launch
from pie_edge.backends.cuda.memory import Buffer, Pinned, Region
from pie_edge.backends.cuda.session import Session
from pie_edge.backends.shared.grid import Count
from pie_edge.backends.shared.inputs import Counts, Inputs
from pie_edge.backends.shared.placement import block
from pie_edge.program.encodings import DType
from pie_edge.program.ops import Value

_FORMATS: Mapping[DType, Any] = {
    DType.F32: "f",
    DType.U32: "I",
    DType.I32: "i",
    DType.U8: "B",
    DType.I8: "b",
    DType.F16: "e",
}
_THREAD_LOCAL = 1
"""Capturing concerns the capturing thread alone."""


@dataclass(eq=False)
class Flight:
    """A run: done when the timeline reaches ``value``."""

    value: int
    slot: Slot
    taken: bool
    """Its outputs were read, or there are none."""


@dataclass(eq=False)
class Slot:
    upload: Pinned
    readback: Pinned | None
    last: int = 0
    """The timeline's number of its latest run."""
    flight: weakref.ref[Flight] | None = None

    def is_untaken(self) -> bool:
        """Whether somebody may still ask for the outputs of its latest run."""
        flight = None if self.flight is None else self.flight()
        return flight is not None and not flight.taken


@dataclass(frozen=True)
class Wiring:
    """What an executable is made of, decided when it was compiled."""

    inputs: Inputs
    inbox: Region
    outputs: Sequence[Value]
    outbox: Region | None
    """Device memory of the outputs, if there are any."""
    capacities: Mapping[str, int]
    shape_of: Callable[[Mapping[str, int]], Hashable]
    launches: Callable[[Hashable], Sequence[Launch]]


class Owned:
    """What an executable made on its session, given back when nobody has the executable any more."""

    def __init__(self, session: Session, buffers: Sequence[Buffer]) -> None:
        self.session = session
        self.buffers = list(buffers)
        self.pinned: list[Pinned] = []
        self.graphs: list[c_void_p] = []

    def release(self) -> None:
        for buffer in self.buffers:
            self.session.free(buffer)
        for pinned in self.pinned:
            self.session.unpin(pinned)
        self.session.retire(self._destroy_graphs)

    def _destroy_graphs(self) -> None:
        for graph in self.graphs:
            self.session.gpu.call("give back a graph", "cuGraphExecDestroy", graph)


class Recorded:
    """The device's side of an executable: it dies with its session."""

    def __init__(self, session: Session, wiring: Wiring, name: str) -> None:
        self._session = session
        self._wiring = wiring
        self._name = name
        self._slots: list[Slot] = []
        self._graphs: dict[Hashable, c_void_p] = {}
        self._latest: tuple[Counts, c_void_p] | None = None
        offsets = block(wiring.outputs).offsets
        self._outputs = [
            (v.name, offsets[v.name], offsets[v.name] + v.nbytes, _FORMATS[v.dtype]) for v in wiring.outputs
        ]
        self._output_bytes = max((end for _, _, end, _ in self._outputs), default=0)
        made = [region.buffer for region in (wiring.inbox, wiring.outbox) if region is not None]
        self._owned = Owned(session, made)
        weakref.finalize(self, self._owned.release).atexit = False
        gpu = session.gpu
        self._copy_in, self._launch, self._copy_out = map(
            gpu.raw, ("cuMemcpyHtoDAsync_v2", "cuGraphLaunch", "cuMemcpyDtoHAsync_v2")
        )

    def prepare(self, likely: Sequence[Counts]) -> None:
        """Capture these steps, and make a slot: compiles whatever has not been compiled yet."""
        shapes = dict.fromkeys(map(self._wiring.shape_of, likely))
        self._session.prepare(launch.kernel for shape in shapes for launch in self._wiring.launches(shape))
        for counts in likely:
            self._graph(counts)
        if not self._slots:
            self._slots.append(self._new_slot())

    def run_slowly(self, given: Mapping[str, BytesLike], between: Callable[[int, int], None]) -> Flight:
        """As ``run``, but waits for its end, which ``between`` hears of: a graph is one launch."""
        flight = self.run(given)
        self._session.timeline.drain()
        between(1, 1)
        return flight

    def run(self, given: Mapping[str, BytesLike]) -> Flight:
        """Enqueue a step. Raises DeviceLost."""
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
                status = status or self._copy_out(slot.readback.address, place, self._output_bytes, stream)
            timeline.checked(status, f"run {self._name}")
            slot.last = timeline.mark()
        flight = Flight(slot.last, slot, taken=slot.readback is None)
        slot.flight = None if flight.taken else weakref.ref(flight)
        return flight

    def outputs(self, flight: Flight) -> dict[str, memoryview]:
        """The outputs of a run that is done, by name, copied; its slot is free then."""
        flight.taken = True
        readback = flight.slot.readback
        if readback is None:
            return {}
        view = readback.view
        return {name: memoryview(view[start:end].tobytes()).cast(form) for name, start, end, form in self._outputs}

    def _graph_of(self, counts: Counts) -> c_void_p:
        """The counts are mostly those of the step before."""
        if self._latest is None or counts != self._latest[0]:
            self._latest = counts, self._graph(counts)
        return self._latest[1]

    def _graph(self, counts: Counts) -> c_void_p:
        shape = self._wiring.shape_of(counts)
        grids = self._rounded(counts)
        key = shape, *grids.values()
        if key not in self._graphs:
            self._graphs[key] = self._captured(self._wiring.launches(shape), grids)
            self._owned.graphs.append(self._graphs[key])
        return self._graphs[key]

    def _rounded(self, counts: Counts) -> Counts:
        """The next powers of two, at most the Program's capacities; what is given by name stays as it is."""
        most = self._wiring.capacities
        found = {}
        for name, count in counts.items():
            found[name] = min(1 << max(count - 1, 0).bit_length(), max(most[name], 1)) if name in most else count
        return found

    def _captured(self, launches: Sequence[Launch], counts: Counts) -> c_void_p:
        """The launches as one graph. All memory and kernels are there already: capturing allocates nothing."""
        session, gpu = self._session, self._session.gpu
        for launch in launches:
            session.function(launch.kernel)
        stream = gpu.made("make a stream", "cuStreamCreate", 1)
        gpu.call("capture a step", "cuStreamBeginCapture_v2", stream, _THREAD_LOCAL)
        for launch in launches:
            x, y, z = (extent.value(counts) if isinstance(extent, Count) else extent for extent in launch.grid)
            if x and y and z:
                session.enqueue(launch, (x, y, z), stream)
        graph = c_void_p()
        gpu.call("capture a step", "cuStreamEndCapture", stream, byref(graph))
        made = gpu.made("make a graph", "cuGraphInstantiateWithFlags", graph, 0)
        gpu.call("give back a graph", "cuGraphDestroy", graph)
        gpu.call("give back a stream", "cuStreamDestroy_v2", stream)
        return made

    def _free_slot(self) -> Slot:
        is_reached = self._session.timeline.is_reached
        for slot in self._slots:
            if not slot.is_untaken() and is_reached(slot.last):
                return slot
        self._slots.append(self._new_slot())
        return self._slots[-1]

    def _new_slot(self) -> Slot:
        upload = self._session.pinned(max(self._wiring.inputs.nbytes, 4), f"inputs of {self._name}")
        readback = self._session.pinned(self._output_bytes, f"outputs of {self._name}") if self._output_bytes else None
        self._owned.pinned += [upload] if readback is None else [upload, readback]
        return Slot(upload, readback)
