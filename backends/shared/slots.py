"""A compiled Program on a device, whatever the API: what it is made of, the slots through which its steps go in and out, and what
it gives back when nobody has it any more."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from pie_edge.backends.shared.inputs import Inputs
from pie_edge.backends.shared.placement import block
from pie_edge.backends.shared.plans import LaunchT, Plan
from pie_edge.backends.shared.region import B, Region
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


class Outputs:
    """Where a Program's outputs lie in their block of ``nbytes``."""

    def __init__(self, values: Sequence[Value]) -> None:
        offsets = block(values).offsets
        self._parts = [(v.name, offsets[v.name], offsets[v.name] + v.nbytes, _FORMATS[v.dtype]) for v in values]
        self.nbytes = max((end for _, _, end, _ in self._parts), default=0)

    def of(self, data: bytes) -> dict[str, memoryview]:
        """Each by name, of the block's bytes."""
        view = memoryview(data)
        return {name: view[start:end].cast(form) for name, start, end, form in self._parts}


@dataclass(eq=False)
class Slot:
    """What one run after the other goes through."""

    last: int = field(default=0, kw_only=True)
    """The timeline's number of its latest run."""
    flight: weakref.ref[Flight[Any]] | None = field(default=None, kw_only=True)

    def is_untaken(self) -> bool:
        """Whether somebody may still ask for the outputs of its latest run."""
        flight = None if self.flight is None else self.flight()
        return flight is not None and flight.slot is not None


SlotT = TypeVar("SlotT", bound=Slot)


@dataclass(eq=False)
class Flight(Generic[SlotT]):
    """A run: done when the timeline reaches ``value``."""

    value: int
    slot: SlotT | None
    """Where its outputs are; None where it has none, and once they were taken."""


@dataclass(frozen=True)
class Wiring(Generic[B, LaunchT]):
    """What an executable is made of, decided when it was compiled."""

    name: str
    inputs: Inputs
    inbox: Region[B]
    """Device memory of the inputs."""
    outputs: Outputs
    outbox: Region[B] | None
    """Device memory of the outputs, if there are any."""
    plan: Plan[LaunchT]


class Owned(Generic[B]):
    """What an executable made on its session, given back when nobody has the executable any more; buffers by ``free``."""

    def __init__(self, free: Callable[[B], None]) -> None:
        self.buffers: list[B] = []
        self.others: list[Callable[[], None]] = []
        """What gives the rest back, each to be called once."""
        self._free = free

    def release(self) -> None:
        for buffer in self.buffers:
            self._free(buffer)
        for give_back in self.others:
            give_back()


class Timeline(Protocol):
    def is_reached(self, value: int) -> bool:
        """Raises DeviceLost."""


class Slotted(ABC, Generic[B, LaunchT, SlotT]):
    """The device's side of an executable: it dies with its session."""

    def __init__(self, free: Callable[[B], None], timeline: Timeline, wiring: Wiring[B, LaunchT]) -> None:
        self._wiring = wiring
        self._slots: list[SlotT] = []
        self._timeline = timeline
        self._owned: Owned[B] = Owned(free)
        self._owned.buffers += [region.buffer for region in (wiring.inbox, wiring.outbox) if region is not None]
        weakref.finalize(self, self._owned.release).atexit = False

    @abstractmethod
    def _new_slot(self) -> SlotT: ...

    @abstractmethod
    def _read_back(self, slot: SlotT) -> bytes:
        """The block of outputs of its latest run, which is done. Raises DeviceLost."""

    def outputs(self, flight: Flight[SlotT]) -> dict[str, memoryview]:
        """The outputs of a run that is done, by name, copied; its slot is free then. To be asked once."""
        slot, flight.slot = flight.slot, None
        return {} if slot is None else self._wiring.outputs.of(self._read_back(slot))

    def _free_slot(self) -> SlotT:
        for slot in self._slots:
            if self._is_free(slot):
                return slot
        self._slots.append(self._new_slot())
        return self._slots[-1]

    def _is_free(self, slot: SlotT) -> bool:
        return not slot.is_untaken() and self._timeline.is_reached(slot.last)

    def _flight(self, slot: SlotT) -> Flight[SlotT]:
        """Of the slot's latest run."""
        flight = Flight(slot.last, slot if self._wiring.outputs.nbytes else None)
        slot.flight = weakref.ref(flight)
        return flight
