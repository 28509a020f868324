"""From a Program and its buffers to what runs on a session: fuse, place, lower, and record the likely step shapes."""

from __future__ import annotations

from collections.abc import Mapping

from pie_edge.backends.shared.fuse import fuse
from pie_edge.backends.shared.inputs import Inputs
from pie_edge.backends.shared.loader import Loader
from pie_edge.backends.shared.placement import aligned, block, place_block, within
from pie_edge.backends.shared.plans import FixedPlan, ModelPlan
from pie_edge.backends.shared.scratch import scratch_bytes
from pie_edge.backends.shared.shapes import StepShape
from pie_edge.backends.shared.tuning import Tuning
from pie_edge.backends.shared.weights import Weight, together
from pie_edge.backends.vulkan.epilogue import Epilogue
from pie_edge.backends.vulkan.executable import GRID_BYTES, MOST_GRIDS, Recorded, Wiring
from pie_edge.backends.vulkan.launch import Launch
from pie_edge.backends.vulkan.lower import lower
from pie_edge.backends.vulkan.lowering import Lowering
from pie_edge.backends.vulkan.memory import Buffer, Region
from pie_edge.backends.vulkan.session import Session
from pie_edge.program.nodes import PREFIX
from pie_edge.program.ops import Program, Role
from pie_edge.program.plan import arena

_LEAST_ARENA = 1 << 16


class Compiler:
    """Compiles Programs for one session. Temporaries of all Programs share buffers: runs are in order."""

    def __init__(self, session: Session, loader: Loader[Buffer], tuning: Tuning, max_binding: int) -> None:
        self._session = session
        self._loader = loader
        self._tuning = tuning
        self._max_binding = max_binding
        self._arenas: list[Buffer] = []
        self._constants: dict[bytes, Region] = {}

    def compile(self, program: Program, states: Mapping[str, Region], weights: Mapping[str, Weight]) -> Recorded:
        """Runs in a worker thread. Raises Unsupported or OutOfMemory."""
        inputs, produced = Inputs(program), program.by_role(Role.OUTPUT)
        outputs = block(produced)
        inbox = self._buffer(inputs.block.nbytes + MOST_GRIDS * GRID_BYTES, f"inputs of {program.name}")
        outbox = self._buffer(outputs.nbytes, f"outputs of {program.name}") if outputs.nbytes else None
        place = dict(states) | place_block(program, Role.INPUT, inputs.block, inbox)
        if outbox is not None:
            place |= place_block(program, Role.OUTPUT, outputs, outbox)
        plan: FixedPlan[Launch] | ModelPlan[Launch] = (
            self._epilogue(program, place)
            if any(op.kind.startswith(PREFIX) for op in program.ops)
            else self._by_shape(self._model(program, place, weights))
        )
        wiring = Wiring(inputs, inbox, produced, outbox, plan.shape_of, plan.launches)
        recorded = Recorded(self._session, wiring, program.name)
        recorded.prepare(plan.likely())
        return recorded

    def reserve(self, program: Program) -> None:
        """Room for the temporaries of this Program, so that those of smaller ones need no more."""
        self._arena(self.arena_bytes(program))

    def arena_bytes(self, program: Program) -> int:
        """Of a model Program's temporaries, wherever its weights will lie: those that are bound together save some more."""
        fused = fuse(program, lambda names: False)
        return max(arena(fused).nbytes + self._partial_bytes(fused), _LEAST_ARENA)

    def own_bytes(self, program: Program) -> list[int]:
        """The buffers that a compiled Program has for itself, with one slot."""
        inputs, outputs = Inputs(program), block(program.by_role(Role.OUTPUT)).nbytes
        slot = -(-inputs.nbytes // GRID_BYTES) * GRID_BYTES + MOST_GRIDS * GRID_BYTES
        return [inputs.block.nbytes + MOST_GRIDS * GRID_BYTES, slot, *([outputs, outputs] if outputs else [])]

    def _partial_bytes(self, program: Program) -> int:
        return aligned(scratch_bytes(program, self._tuning.split))

    def close(self) -> None:
        """Give temporaries and tables back; nothing that was compiled may run again."""
        for buffer in self._arenas:
            self._session.free(buffer)
        for region in self._constants.values():
            self._loader.free_region(region)

    def _epilogue(self, program: Program, place: Mapping[str, Region]) -> FixedPlan[Launch]:
        made = Epilogue(program, self._session.gpu.facts)
        return FixedPlan(made.launches(place.__getitem__, self._arena(made.arena_bytes)))

    def _by_shape(self, lowering: Lowering) -> ModelPlan[Launch]:
        tuning = lowering.tuning
        return ModelPlan(lowering.program, tuning.tokens, tuning.split, lambda shape: lower(lowering.shaped(shape)))

    def _model(self, program: Program, place: Mapping[str, Region], weights: Mapping[str, Weight]) -> Lowering:
        fused = fuse(program, lambda names: together([weights[name] for name in names], self._max_binding))
        plan = arena(fused)
        partial = self._partial_bytes(fused)
        room = self._arena(plan.nbytes + partial)
        temps = {name: within(fused.values[name], offset, room) for name, offset in plan.offsets.items()}
        return Lowering(
            program=fused,
            place=dict(place) | temps,
            weights=weights,
            scratch=room.part(plan.nbytes, partial) if partial else None,
            tuning=self._tuning,
            facts=self._session.gpu.facts,
            shape=StepShape(1, 1, singles=True, several=False, splits=False),
            constant=self._constant,
        )

    def _arena(self, nbytes: int) -> Region:
        """Room for temporaries, in the smallest buffer that has it."""
        fitting = [buffer for buffer in self._arenas if buffer.nbytes >= nbytes]
        if not fitting:
            fitting = [self._session.device_buffer(max(nbytes, _LEAST_ARENA), "temporaries")]
            self._arenas += fitting
        return min(fitting, key=lambda buffer: buffer.nbytes).region()

    def _buffer(self, nbytes: int, what: str) -> Region:
        return self._session.device_buffer(nbytes, what).region(0, nbytes)

    def _constant(self, data: bytes) -> Region:
        if data not in self._constants:
            self._constants[data] = self._loader.constant(data, "a table of frequencies")
        return self._constants[data]
