"""From a Program and its buffers to what runs on a session: fuse, place, lower, and plan the likely step shapes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace

from pie_edge.backends.shared.fuse import fuse
from pie_edge.backends.shared.inputs import Inputs
from pie_edge.backends.shared.loader import Loader
from pie_edge.backends.shared.placement import aligned, block, place_block, within
from pie_edge.backends.shared.plans import FixedPlan, ModelPlan
from pie_edge.backends.shared.scratch import scratch_bytes
from pie_edge.backends.shared.shapes import StepShape
from pie_edge.backends.shared.tuning import Tuning
from pie_edge.backends.shared.weights import Matrix, Weight, together
from pie_edge.backends.wgpu.absorb import absorb, sides
from pie_edge.backends.wgpu.epilogue import Epilogue, Places
from pie_edge.backends.wgpu.executable import Planned, Wiring
from pie_edge.backends.wgpu.lower import lower
from pie_edge.backends.wgpu.lower_linear import MOST_UNIFORM
from pie_edge.backends.wgpu.lower_recurrent import gates_bytes
from pie_edge.backends.wgpu.lowering import Lowering
from pie_edge.backends.wgpu.memory import Buffer, Region
from pie_edge.backends.wgpu.plan import Launch
from pie_edge.backends.wgpu.session import Session
from pie_edge.program.nodes import PREFIX
from pie_edge.program.ops import Program, Role
from pie_edge.program.plan import Arena, arena

_LEAST_ARENA = 1 << 16


class Compiler:
    """Compiles Programs for one session. Temporaries of all Programs share buffers: runs are in order."""

    def __init__(self, session: Session, loader: Loader[Buffer], tuning: Tuning, max_binding: int) -> None:
        self._session = session
        self._loader = loader
        self._tuning = tuning
        self._max_binding = max_binding
        self._nothing: Buffer | None = None
        self._arenas: dict[int, list[Buffer]] = {}
        self._constants: dict[bytes, Region] = {}

    def compile(self, program: Program, states: Mapping[str, Region], weights: Mapping[str, Weight]) -> Planned:
        """Runs in a worker thread. Raises Unsupported, OutOfMemory, or BackendError for a kernel that isn't compiled."""
        inputs, produced = Inputs(program), program.by_role(Role.OUTPUT)
        outputs = block(produced)
        inbox = self._buffer(inputs.nbytes, f"inputs of {program.name}")
        outbox = self._buffer(outputs.nbytes, f"outputs of {program.name}") if outputs.nbytes else None
        place = dict(states)
        if outbox is not None:
            place |= place_block(program, Role.OUTPUT, outputs, outbox)
        if any(op.kind.startswith(PREFIX) for op in program.ops):
            plan: FixedPlan[Launch] | ModelPlan[Launch] = self._epilogue(program, states, inputs, inbox, outbox)
        else:
            plan = self._by_shape(self._model(program, place, weights, inputs, inbox))
        wiring = Wiring(inputs, inbox, produced, outbox, plan.shape_of, plan.launches)
        planned = Planned(self._session, wiring, program.name, self._max_binding)
        planned.prepare(plan.likely())
        return planned

    def reserve(self, program: Program) -> None:
        """Room for the temporaries of this Program, so that those of smaller ones need no more."""
        for number, nbytes in enumerate(self._arenas_bytes(program)):
            self._arena(number, nbytes)

    def arena_bytes(self, program: Program) -> int:
        """Of a model Program's temporaries, wherever its weights will lie: those that are bound together save some more."""
        return sum(max(nbytes, _LEAST_ARENA) + MOST_UNIFORM for nbytes in self._arenas_bytes(program))

    def _arenas_bytes(self, program: Program) -> list[int]:
        fused = absorb(fuse(program, lambda names: False), lambda name: False)
        first, second = _plans(fused)
        return [first.nbytes + self._scratch(fused), second.nbytes]

    def _scratch(self, program: Program) -> int:
        return aligned(max(scratch_bytes(program, self._tuning.split), gates_bytes(program)))

    def own_bytes(self, program: Program) -> list[int]:
        """The buffers that a compiled Program has for itself, with one slot, and parameters of two step shapes."""
        inputs, outputs = Inputs(program).nbytes, block(program.by_role(Role.OUTPUT)).nbytes
        parameters = 256 * len(program.ops)
        return [inputs, parameters, parameters, *([outputs, outputs] if outputs else [])]

    def close(self) -> None:
        """Give temporaries and tables back; nothing that was compiled may run again."""
        for buffer in itertools.chain(*self._arenas.values()):
            self._session.free(buffer)
        for region in self._constants.values():
            self._loader.free_region(region)

    def _by_shape(self, lowering: Lowering) -> ModelPlan[Launch]:
        tuning = lowering.tuning
        return ModelPlan(lowering.program, tuning.tokens, tuning.split, lambda shape: lower(lowering.shaped(shape)))

    def _model(
        self,
        program: Program,
        place: Mapping[str, Region],
        weights: Mapping[str, Weight],
        inputs: Inputs,
        inbox: Region,
    ) -> Lowering:
        def single(name: str) -> bool:
            weight = weights[name]
            return isinstance(weight, Matrix) and len(weight.parts) == 1

        fused = fuse(program, lambda names: together([weights[name] for name in names], self._max_binding))
        fused = absorb(fused, single)
        plans, partial = _plans(fused), self._scratch(fused)
        rooms = [self._arena(n, plan.nbytes + partial * (n == 0)) for n, plan in enumerate(plans)]
        temps = {
            name: within(fused.values[name], offset, room)
            for plan, room in zip(plans, rooms, strict=True)
            for name, offset in plan.offsets.items()
        }
        return Lowering(
            program=fused,
            place=dict(place) | temps,
            step=inbox,
            words=_words(inputs),
            weights=weights,
            scratch=rooms[0].part(plans[0].nbytes, partial) if partial else None,
            tuning=self._tuning,
            max_binding=self._max_binding,
            shape=StepShape(1, 1, singles=True, several=False, splits=False),
            constant=self._constant,
        )

    def _epilogue(
        self, program: Program, states: Mapping[str, Region], inputs: Inputs, inbox: Region, outbox: Region | None
    ) -> FixedPlan[Launch]:
        made = Epilogue(program, self._session.facts)
        offsets = block(program.by_role(Role.OUTPUT)).offsets
        places = Places(
            states=states,
            inbox=inbox,
            inputs=_words(inputs),
            outbox=outbox or self._spare(),
            outputs={name: offset // 4 for name, offset in offsets.items()},
            arena=self._arena(0, made.arena_bytes).part(0, -(-made.arena_bytes // 16) * 16),
        )
        return FixedPlan(made.launches(places))

    def _spare(self) -> Region:
        """What is bound as outputs where there are none."""
        if self._nothing is None:
            self._nothing = self._session.buffer(16, "no outputs")
        return self._nothing.region()

    def _arena(self, number: int, nbytes: int) -> Region:
        """Room for temporaries, in the smallest buffer that has it. A uniform buffer may reach past their end."""
        there = self._arenas.setdefault(number, [])
        fitting = [buffer for buffer in there if buffer.nbytes >= nbytes + MOST_UNIFORM]
        if not fitting:
            fitting = [self._session.buffer(max(nbytes, _LEAST_ARENA) + MOST_UNIFORM, "temporaries")]
            there += fitting
        return min(fitting, key=lambda buffer: buffer.nbytes).region()

    def _buffer(self, nbytes: int, what: str) -> Region:
        return self._session.buffer(nbytes, what).region()

    def _constant(self, data: bytes) -> Region:
        if data not in self._constants:
            self._constants[data] = self._loader.constant(data, "a table of frequencies")
        return self._constants[data]


def _plans(program: Program) -> tuple[Arena, Arena]:
    """Where the temporaries of each side lie."""
    of, values = sides(program), program.values

    def alone(side: int) -> Arena:
        others = {name: replace(values[name], role=Role.STATE) for name, other in of.items() if other != side}
        return arena(replace(program, values={**values, **others}))

    return alone(0), alone(1)


def _words(inputs: Inputs) -> dict[str, int]:
    """The word of the inbox that each input begins with."""
    return {field.name: field.start // 4 for field in inputs.fields}
