"""From a Program and its buffers to what runs on a session, whatever the API: fuse, place, lower, and make the likely steps
ready. Each API has its own launches, and its own places for what a step brings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pie_edge.backends.shared.epilogue import Places
from pie_edge.backends.shared.fuse import fuse
from pie_edge.backends.shared.inputs import Inputs
from pie_edge.backends.shared.loader import Loader
from pie_edge.backends.shared.lowering import BaseLowering
from pie_edge.backends.shared.placement import Block, aligned, block, place_block, within
from pie_edge.backends.shared.plans import FixedPlan, LaunchT, ModelPlan, Plan
from pie_edge.backends.shared.region import Region, SizedT, whole
from pie_edge.backends.shared.scratch import scratch_bytes
from pie_edge.backends.shared.shapes import StepShape
from pie_edge.backends.shared.slots import Outputs, Wiring
from pie_edge.backends.shared.weights import Weight
from pie_edge.program.nodes import PREFIX
from pie_edge.program.ops import Op, Program, Role
from pie_edge.program.plan import Arena, arena

LEAST_ARENA = 1 << 16
NO_SHAPE = StepShape(1, 1, singles=True, several=False, splits=False)
"""What a lowering has before a step gives it a shape."""
RecordedT = TypeVar("RecordedT")


@dataclass(frozen=True)
class Boxes(Generic[SizedT]):
    """A Program's own buffers: of what a step brings, and of what it gives, if it gives anything."""

    inputs: Inputs
    inbox: Region[SizedT]
    outputs: Block
    outbox: Region[SizedT] | None


class BaseCompiler(ABC, Generic[SizedT, LaunchT, RecordedT]):
    """Compiles Programs for one session. Temporaries of all Programs share buffers: runs are in order."""

    table: Mapping[str, Callable[[Any, Op], Sequence[LaunchT]]]
    """What each kind of op is launched as, of a lowering."""
    slack = 0
    """Bytes of an arena past what is asked for."""

    def __init__(self, session: Any, loader: Loader[SizedT], tuning: Any, max_binding: int) -> None:
        self._session = session
        self._loader = loader
        self._tuning = tuning
        self._max_binding = max_binding
        self._arenas: dict[int, list[SizedT]] = {}
        """By number: what must not lie in one buffer lies in arenas of other numbers."""
        self._constants: dict[bytes, Region[SizedT]] = {}

    def compile(
        self, program: Program, states: Mapping[str, Region[SizedT]], weights: Mapping[str, Weight]
    ) -> RecordedT:
        """Runs in a worker thread. Raises Unsupported, OutOfMemory, or BackendError for a kernel that isn't compiled."""
        inputs, produced = Inputs(program), program.by_role(Role.OUTPUT)
        outputs = block(produced)
        inbox = self._buffer(self._inbox_bytes(inputs), f"inputs of {program.name}")
        outbox = self._buffer(outputs.nbytes, f"outputs of {program.name}") if outputs.nbytes else None
        boxes, place = Boxes(inputs, inbox, outputs, outbox), dict(states)
        if outbox is not None:
            place |= place_block(program, Role.OUTPUT, outputs, outbox)
        plan: Plan[LaunchT]
        if any(op.kind.startswith(PREFIX) for op in program.ops):
            plan = FixedPlan(self._epilogue(program, place, boxes))
        else:
            plan = self._by_shape(self._lowering(program, place, weights, boxes))
        return self._recorded(program, Wiring(program.name, inputs, inbox, Outputs(produced), outbox, plan))

    def _by_shape(self, lowering: BaseLowering[SizedT, Any]) -> ModelPlan[LaunchT]:
        def launches(shape: StepShape) -> list[LaunchT]:
            shaped = lowering.shaped(shape)
            return [launch for op in shaped.program.ops for launch in self.table[op.kind](shaped, op)]

        return ModelPlan(lowering.program, lowering.tuning.tokens, lowering.tuning.split, launches)

    @abstractmethod
    def _recorded(self, program: Program, wiring: Wiring[SizedT, LaunchT]) -> RecordedT:
        """Ready for its likely steps."""

    @abstractmethod
    def _epilogue(
        self, program: Program, place: Mapping[str, Region[SizedT]], boxes: Boxes[SizedT]
    ) -> Sequence[LaunchT]:
        """``place`` has states and outputs."""

    @abstractmethod
    def _lowering(
        self, program: Program, place: Mapping[str, Region[SizedT]], weights: Mapping[str, Weight], boxes: Boxes[SizedT]
    ) -> BaseLowering[SizedT, Any]:
        """Of a model's Program. ``place`` has states and outputs."""

    def _arenas_bytes(self, program: Program) -> Sequence[int]:
        """Of a model's Program: its temporaries in each arena, wherever its weights will lie."""
        fused = fuse(program, lambda names: False)
        return [arena(fused).nbytes + self._scratch_bytes(fused)]

    def _scratch_bytes(self, program: Program) -> int:
        """Of the largest that one of its ops has: what its launches leave each other."""
        return aligned(scratch_bytes(program, self._tuning.split))

    def _inbox_bytes(self, inputs: Inputs) -> int:
        return inputs.nbytes

    def _inputs_place(self, program: Program, boxes: Boxes[SizedT]) -> dict[str, Region[SizedT]]:
        """One after the other, as they come."""
        return {field.name: boxes.inbox.part(field.start, field.nbytes) for field in boxes.inputs.fields}

    def reserve(self, program: Program) -> None:
        """Room for the temporaries of this Program, so that those of smaller ones need no more."""
        for number, nbytes in enumerate(self._arenas_bytes(program)):
            self._arena(nbytes, number)

    def arena_bytes(self, program: Program) -> int:
        """Of a model Program's temporaries, wherever its weights will lie: those that are launched together save some more."""
        return sum(max(nbytes, LEAST_ARENA) + self.slack for nbytes in self._arenas_bytes(program))

    def own_bytes(self, program: Program) -> list[int]:
        """The buffers that a compiled Program has for itself."""
        outputs = block(program.by_role(Role.OUTPUT)).nbytes
        return [self._inbox_bytes(Inputs(program)), *([outputs] if outputs else [])]

    def close(self) -> None:
        """Give temporaries and tables back; nothing that was compiled may run again."""
        for buffer in (one for arenas in self._arenas.values() for one in arenas):
            self._session.free(buffer)
        for region in self._constants.values():
            self._loader.free_region(region)

    def _temporaries(self, program: Program) -> tuple[dict[str, Region[SizedT]], Region[SizedT] | None]:
        """Of a model's Program, by name; and the scratch, if some op has one."""
        plan, scratch = arena(program), self._scratch_bytes(program)
        room = self._arena(plan.nbytes + scratch)
        return self._within(program, plan, room), room.part(plan.nbytes, scratch) if scratch else None

    def _within(self, program: Program, plan: Arena, room: Region[SizedT]) -> dict[str, Region[SizedT]]:
        return {name: within(program.values[name], offset, room) for name, offset in plan.offsets.items()}

    def _places(
        self,
        program: Program,
        place: Mapping[str, Region[SizedT]],
        boxes: Boxes[SizedT],
        outbox: Region[SizedT],
        nbytes: int,
    ) -> Places[SizedT]:
        """Of an epilogue, with a box where it gives nothing, and an arena of so many bytes."""
        regions = {**place, **self._inputs_place(program, boxes)}
        return Places(regions, boxes.inbox, outbox, self._arena(nbytes).part(0, -(-nbytes // 16) * 16))

    def _arena(self, nbytes: int, number: int = 0) -> Region[SizedT]:
        """Room for temporaries, in the smallest buffer that has it."""
        there = self._arenas.setdefault(number, [])
        fitting = [buffer for buffer in there if buffer.nbytes >= nbytes + self.slack]
        if not fitting:
            fitting = [self._session.device_buffer(max(nbytes, LEAST_ARENA) + self.slack, "temporaries")]
            there += fitting
        return whole(min(fitting, key=lambda buffer: buffer.nbytes))

    def _buffer(self, nbytes: int, what: str) -> Region[SizedT]:
        buffer: SizedT = self._session.device_buffer(nbytes, what)
        return whole(buffer)

    def _constant(self, data: bytes) -> Region[SizedT]:
        if data not in self._constants:
            self._constants[data] = self._loader.constant(data, "a table of frequencies")
        return self._constants[data]
