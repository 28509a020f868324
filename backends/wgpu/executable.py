"""A compiled Program on a session: a plan for each step shape, encoded anew for each step; and how outputs come back."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

from pie_edge.backend import BytesLike
from pie_edge.backends.shared.slots import Flight, Slot, Slotted, Wiring
from pie_edge.backends.wgpu.encoder import Encoder
from pie_edge.backends.wgpu.memory import Buffer
from pie_edge.backends.wgpu.plan import Launch, Plan, build
from pie_edge.backends.wgpu.session import Mapping as Mapped
from pie_edge.backends.wgpu.session import Session


@dataclass(eq=False)
class ReadbackSlot(Slot):
    """Where outputs of one run after the other are read."""

    buffer: Buffer
    mapping: Mapped | None = None
    """Of its latest run's outputs, until they are taken."""


class Planned(Slotted[Buffer, Launch, ReadbackSlot]):
    def __init__(self, session: Session, wiring: Wiring[Buffer, Launch], max_binding: int) -> None:
        super().__init__(session.free, session.timeline, wiring)
        self._session = session
        self._max_binding = max_binding
        self._encoders: dict[Hashable, Encoder] = {}
        self._room = bytearray(wiring.inputs.nbytes)
        self._latest = 0
        """The number of the latest run."""

    def plan_for(self, counts: Mapping[str, int]) -> Plan:
        """What runs for a step of these true counts, as data."""
        return self._encoder(self._wiring.plan.shape_of(counts)).plan

    def prepare(self, shapes: Sequence[Hashable]) -> None:
        """Make pipelines and bind groups for these shapes."""
        for shape in shapes:
            self._encoder(shape)

    def run(self, given: Mapping[str, BytesLike]) -> Flight[ReadbackSlot]:
        """Enqueue a step. One without outputs is held back: what is enqueued next reads what it leaves behind."""
        return self._enqueue(given, None)

    def run_slowly(self, given: Mapping[str, BytesLike], between: Callable[[int, int], None]) -> Flight[ReadbackSlot]:
        """As ``run``, but waits for each launch before it enqueues the next, and for the last one. ``between`` hears how many
        are done, of how many; what it raises ends the run."""
        flight = self._enqueue(given, between)
        self._session.timeline.drain()
        return flight

    def _enqueue(
        self, given: Mapping[str, BytesLike], between: Callable[[int, int], None] | None
    ) -> Flight[ReadbackSlot]:
        session, timeline, wiring = self._session, self._session.timeline, self._wiring
        room = memoryview(self._room)
        counts = wiring.inputs.fill(room, given)
        encoder = self._encoder(wiring.plan.shape_of(counts))
        slot = self._free_slot() if wiring.outbox is not None else None
        if slot is not None and slot.mapping is not None:
            slot.mapping.drop()
        with timeline.lock:
            session.put(wiring.inbox, room, after=self._latest)
            if between is not None:
                self._one_by_one(encoder, counts, between)
            commands = encoder.encode(
                counts, None if slot is None else slot.buffer.region(), None if between is None else slice(0)
            )
            self._latest = timeline.submit(commands, hold=slot is None)
            if slot is None:
                return Flight(self._latest, None)
            slot.last, slot.mapping = self._latest, Mapped(session, slot.buffer)
        return self._flight(slot)

    def _one_by_one(self, encoder: Encoder, counts: Mapping[str, int], between: Callable[[int, int], None]) -> None:
        for number in range(len(encoder)):
            between(number, len(encoder))
            self._session.timeline.submit(encoder.encode(counts, None, slice(number, number + 1)))
            self._session.timeline.drain()
        between(len(encoder), len(encoder))

    def _encoder(self, shape: Hashable) -> Encoder:
        if shape not in self._encoders:
            launches = self._wiring.plan.launches(shape)
            made = Encoder(self._session, build(launches, self._wiring.outbox, self._max_binding))
            self._owned.others.append(made.release)
            self._encoders[shape] = made
        return self._encoders[shape]

    def _read_back(self, slot: ReadbackSlot) -> bytes:
        mapping, slot.mapping = slot.mapping, None
        assert mapping is not None
        return mapping.taken()

    def _new_slot(self) -> ReadbackSlot:
        wiring = self._wiring
        assert wiring.outbox is not None
        buffer = self._session.buffer(wiring.outbox.nbytes, f"outputs of {wiring.name}", readback=True)
        self._owned.buffers.append(buffer)
        return ReadbackSlot(buffer)
