"""A compiled Program: launches recorded once for a step shape and a slot, and the slots through which steps go in and out.

A slot has a mapped block that a run fills with the inputs and the grids that depend on them, the command buffers, and a
mapped block for the outputs. A command buffer copies the block in, runs the launches, and copies the outputs out. What a
run of them costs Python is a few copies between memoryviews, so nothing here is made anew that can be kept.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from pie_edge.backend import BytesLike
from pie_edge.backends.shared.grid import Count, Grid
from pie_edge.backends.shared.inputs import Counts
from pie_edge.backends.shared.slots import Flight, Slot, Slotted, Wiring
from pie_edge.backends.vulkan.api import Handle
from pie_edge.backends.vulkan.launch import Launch
from pie_edge.backends.vulkan.memory import Buffer, Kind, Region
from pie_edge.backends.vulkan.record import BoundLaunches, Commands
from pie_edge.backends.vulkan.session import Session
from pie_edge.errors import BackendError

GRID_BYTES = 16
MOST_GRIDS = 256
"""Grids that depend on the step, of one recording."""


@dataclass(eq=False)
class MappedSlot(Slot):
    upload: Buffer
    room: memoryview
    """The upload buffer's memory."""
    readback: Buffer | None
    commands: dict[Recording, Handle] = field(default_factory=dict)


class Recording:
    """The launches of one step shape, bound; and the grids that their steps have to fill in."""

    def __init__(self, session: Session, launches: Sequence[Launch]) -> None:
        self.bound: BoundLaunches = session.bind(launches)
        self.grids: list[Grid] = list(dict.fromkeys(launch.grid for launch in launches if launch.indirect))
        if len(self.grids) > MOST_GRIDS:
            raise BackendError(
                f"a Program has {len(self.grids)} grids that depend on the step; {MOST_GRIDS} are the most"
            )

        self._packer = struct.Struct(f"<{4 * len(self.grids)}I")

    @property
    def grids_bytes(self) -> int:
        return self._packer.size

    def packed_grids(self, counts: Counts) -> bytes:
        extents = [extent for grid in self.grids for extent in (*grid, 0)]
        values = [extent.value(counts) if isinstance(extent, Count) else extent for extent in extents]
        return self._packer.pack(*values)


@dataclass(frozen=True, slots=True)
class Step:
    """What the counts of a step decide."""

    counts: Counts
    recording: Recording
    grids: bytes


class Recorded(Slotted[Buffer, Launch, MappedSlot]):
    """In the inbox the grids come after the inputs."""

    def __init__(self, session: Session, wiring: Wiring[Buffer, Launch]) -> None:
        super().__init__(session.free, session.timeline, wiring)
        self._session = session
        self._recordings: dict[Hashable, Recording] = {}
        self._latest: Step | None = None
        self._grids_at = -(-wiring.inputs.nbytes // GRID_BYTES) * GRID_BYTES
        """Where the grids begin in a slot."""

    def prepare(self, shapes: Sequence[Hashable]) -> None:
        """Record these shapes, and make a slot: compiles whatever the driver has not compiled yet."""
        for shape in shapes:
            self._recording(shape)
        if not self._slots:
            self._slots.append(self._new_slot())

    def run(self, inputs: Mapping[str, BytesLike]) -> Flight[MappedSlot]:
        """Enqueue a step. One without outputs is held back: what is enqueued next reads what it leaves behind."""
        slot = self._free_slot()
        room = slot.room
        step = self._step(self._wiring.inputs.fill(room, inputs))
        room[self._grids_at : self._grids_at + len(step.grids)] = step.grids
        with self._session.lock:
            commands = slot.commands.get(step.recording)
            if commands is None:
                commands = slot.commands[step.recording] = self._record(slot, step.recording)
            slot.last = self._session.timeline.submit(commands, hold=slot.readback is None)
        return self._flight(slot)

    def run_slowly(self, inputs: Mapping[str, BytesLike], between: Callable[[int, int], None]) -> Flight[MappedSlot]:
        """As ``run``, but waits for each launch before it enqueues the next, and for the last one. ``between`` hears how many
        are done, of how many; what it raises ends the run."""
        slot, session = self._free_slot(), self._session
        step = self._step(self._wiring.inputs.fill(slot.room, inputs))
        slot.room[self._grids_at : self._grids_at + len(step.grids)] = step.grids
        places, items = self._grid_places(step.recording), step.recording.bound.items
        with session.lock:
            commands = session.commands.begin()
            self._copy_in(commands, slot, step.recording)
            for number, bound in enumerate(items):
                between(number, len(items))
                commands.dispatch(bound, places.get(bound.launch.grid))
                session.send(commands)
                session.timeline.drain()
                commands = session.commands.begin()
            between(len(items), len(items))
            self._copy_out(commands, slot)
            slot.last = session.send(commands)
        session.timeline.drain()
        return self._flight(slot)

    def _read_back(self, slot: MappedSlot) -> bytes:
        assert slot.readback is not None and slot.readback.mapped is not None
        return bytes(slot.readback.mapped[: self._wiring.outputs.nbytes])

    def _step(self, counts: Counts) -> Step:
        """The counts are mostly those of the step before."""
        if self._latest is None or counts != self._latest.counts:
            recording = self._recording(self._wiring.plan.shape_of(counts))
            self._latest = Step(counts, recording, recording.packed_grids(counts))
        return self._latest

    def _recording(self, shape: Hashable) -> Recording:
        if shape not in self._recordings:
            made = Recording(self._session, self._wiring.plan.launches(shape))
            self._owned.others.append(partial(self._session.unbind, made.bound))
            self._recordings[shape] = made
        return self._recordings[shape]

    def _new_slot(self) -> MappedSlot:
        outbox = self._wiring.outbox
        upload = self._session.buffer(
            self._grids_at + MOST_GRIDS * GRID_BYTES, Kind.UPLOAD, f"inputs of {self._wiring.name}"
        )
        assert upload.mapped is not None
        readback = None
        if outbox is not None:
            readback = self._session.buffer(outbox.nbytes, Kind.READBACK, f"outputs of {self._wiring.name}")
        self._owned.buffers += [upload] if readback is None else [upload, readback]
        return MappedSlot(upload, upload.mapped, readback)

    def _record(self, slot: MappedSlot, recording: Recording) -> Handle:
        commands, places = self._session.commands.begin(), self._grid_places(recording)
        self._copy_in(commands, slot, recording)
        for bound in recording.bound.items:
            commands.dispatch(bound, places.get(bound.launch.grid))
        self._copy_out(commands, slot)
        handle = commands.end()
        session = self._session
        self._owned.others.append(partial(session.retire, partial(session.commands.free, handle)))
        return handle

    def _grid_places(self, recording: Recording) -> dict[Grid, Region]:
        """Where on the device the grids that depend on the step are: after the inputs."""
        grids = self._wiring.inbox.part(self._wiring.inputs.block.nbytes, recording.grids_bytes)
        return {grid: grids.part(i * GRID_BYTES, 12) for i, grid in enumerate(recording.grids)}

    def _copy_in(self, commands: Commands, slot: MappedSlot, recording: Recording) -> None:
        inputs = self._wiring.inputs
        parts = [(field.start, field.place, field.nbytes) for field in inputs.fields]
        parts.append((self._grids_at, inputs.block.nbytes, recording.grids_bytes))
        commands.copy_parts(slot.upload.region(), self._wiring.inbox, parts)

    def _copy_out(self, commands: Commands, slot: MappedSlot) -> None:
        if slot.readback is not None and self._wiring.outbox is not None:
            commands.copy(self._wiring.outbox, slot.readback.region())
            commands.show_host()
