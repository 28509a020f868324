"""A compiled Program on a session: a plan for each step shape, encoded anew for each step; and how outputs come back."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pie_edge.backend import BytesLike
from pie_edge.backends.shared.inputs import Inputs
from pie_edge.backends.shared.placement import block
from pie_edge.backends.wgpu.encoder import Encoder
from pie_edge.backends.wgpu.memory import Buffer, Region
from pie_edge.backends.wgpu.plan import Launch, Plan, build
from pie_edge.backends.wgpu.session import Mapping as Mapped
from pie_edge.backends.wgpu.session import Session
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


@dataclass(eq=False)
class Slot:
    """Where outputs of one run after the other are read."""

    buffer: Buffer
    flight: weakref.ref[Flight] | None = None

    def is_untaken(self) -> bool:
        """Whether somebody may still ask for the outputs of its latest run."""
        flight = None if self.flight is None else self.flight()
        return flight is not None and flight.mapping is not None


@dataclass(eq=False)
class Flight:
    """A run: done when the timeline reaches ``value``."""

    value: int
    slot: Slot | None
    mapping: Mapped | None
    """None once its outputs were taken, or where there are none."""


@dataclass(frozen=True)
class Wiring:
    """What an executable is made of, decided when it was compiled."""

    inputs: Inputs
    inbox: Region
    outputs: Sequence[Value]
    outbox: Region | None
    """Device memory of the outputs, if there are any."""
    shape_of: Callable[[Mapping[str, int]], Hashable]
    launches: Callable[[Hashable], Sequence[Launch]]


class Owned:
    """What an executable made on its session, given back when nobody has the executable any more."""

    def __init__(self, session: Session, buffers: Sequence[Buffer]) -> None:
        self.session = session
        self.buffers = list(buffers)
        self.encoders: list[Encoder] = []

    def release(self) -> None:
        for buffer in self.buffers:
            self.session.free(buffer)
        for encoder in self.encoders:
            encoder.release()


class Planned:
    """The device's side of an executable: it dies with its session."""

    def __init__(self, session: Session, wiring: Wiring, name: str, max_binding: int) -> None:
        self._session = session
        self._wiring = wiring
        self._name = name
        self._max_binding = max_binding
        self._encoders: dict[Hashable, Encoder] = {}
        self._slots: list[Slot] = []
        self._room = bytearray(wiring.inputs.nbytes)
        self._latest = 0
        """The number of the latest run."""
        offsets = block(wiring.outputs).offsets
        self._outputs = [
            (v.name, offsets[v.name], offsets[v.name] + v.nbytes, _FORMATS[v.dtype]) for v in wiring.outputs
        ]
        made = [region.buffer for region in (wiring.inbox, wiring.outbox) if region is not None]
        self._owned = Owned(session, made)
        weakref.finalize(self, self._owned.release).atexit = False

    def plan_for(self, counts: Mapping[str, int]) -> Plan:
        """What runs for a step of these true counts, as data."""
        return self._encoder(self._wiring.shape_of(counts)).plan

    def prepare(self, shapes: Sequence[Hashable]) -> None:
        """Make pipelines and bind groups for these shapes."""
        for shape in shapes:
            self._encoder(shape)

    def run(self, given: Mapping[str, BytesLike]) -> Flight:
        """Enqueue a step. One without outputs is held back: what is enqueued next reads what it leaves behind."""
        return self._enqueue(given, None)

    def run_slowly(self, given: Mapping[str, BytesLike], between: Callable[[int, int], None]) -> Flight:
        """As ``run``, but waits for each launch before it enqueues the next, and for the last one. ``between`` hears how many
        are done, of how many; what it raises ends the run."""
        flight = self._enqueue(given, between)
        self._session.timeline.drain()
        return flight

    def _enqueue(self, given: Mapping[str, BytesLike], between: Callable[[int, int], None] | None) -> Flight:
        session, timeline = self._session, self._session.timeline
        room = memoryview(self._room)
        counts = self._wiring.inputs.fill(room, given)
        encoder = self._encoder(self._wiring.shape_of(counts))
        slot = self._free_slot() if self._outputs else None
        with timeline.lock:
            session.put(self._wiring.inbox, room, after=self._latest)
            if between is not None:
                self._one_by_one(encoder, counts, between)
            commands = encoder.encode(
                counts, None if slot is None else slot.buffer.region(), None if between is None else slice(0)
            )
            self._latest = timeline.submit(commands, hold=slot is None)
            mapping = None if slot is None else Mapped(session, slot.buffer)
        flight = Flight(self._latest, slot, mapping)
        if slot is not None:
            slot.flight = weakref.ref(flight)
        return flight

    def _one_by_one(self, encoder: Encoder, counts: Mapping[str, int], between: Callable[[int, int], None]) -> None:
        for number in range(len(encoder)):
            between(number, len(encoder))
            self._session.timeline.submit(encoder.encode(counts, None, slice(number, number + 1)))
            self._session.timeline.drain()
        between(len(encoder), len(encoder))

    def outputs(self, flight: Flight) -> dict[str, memoryview]:
        """The outputs of a run that is done, by name, copied; its slot is free then."""
        mapping, flight.mapping = flight.mapping, None
        if mapping is None:
            return {}
        data = memoryview(mapping.taken())
        return {name: data[start:end].cast(form) for name, start, end, form in self._outputs}

    def _encoder(self, shape: Hashable) -> Encoder:
        if shape not in self._encoders:
            launches = self._wiring.launches(shape)
            made = Encoder(self._session, build(launches, self._wiring.outbox, self._max_binding))
            self._owned.encoders.append(made)
            self._encoders[shape] = made
        return self._encoders[shape]

    def _free_slot(self) -> Slot:
        for slot in self._slots:
            if not slot.is_untaken():
                return slot
        assert self._wiring.outbox is not None
        made = Slot(self._session.buffer(self._wiring.outbox.nbytes, f"outputs of {self._name}", readback=True))
        self._owned.buffers.append(made.buffer)
        self._slots.append(made)
        return made
