"""From a Program and its buffers to what runs on a session: fuse, place, lower, and capture the likely steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pie_edge.backends.cuda.epilogue import Epilogue, Places
from pie_edge.backends.cuda.executable import Recorded, Wiring
from pie_edge.backends.cuda.launch import Launch
from pie_edge.backends.cuda.lower import lower
from pie_edge.backends.cuda.lowering import Lowering
from pie_edge.backends.cuda.memory import Buffer, Region
from pie_edge.backends.cuda.session import Session
from pie_edge.backends.cuda.tuning import Tuning
from pie_edge.backends.shared.fuse import fuse
from pie_edge.backends.shared.inputs import Counts, Inputs
from pie_edge.backends.shared.loader import Loader
from pie_edge.backends.shared.placement import aligned, block, place_block, within
from pie_edge.backends.shared.plans import FixedPlan, ModelPlan
from pie_edge.backends.shared.scratch import scratch_bytes
from pie_edge.backends.shared.shapes import StepShape, likely_counts
from pie_edge.backends.shared.weights import Matrix, Weight
from pie_edge.program.nodes import PREFIX
from pie_edge.program.ops import Program, Role
from pie_edge.program.plan import arena

_LEAST_ARENA = 1 << 16


class Compiler:
    """Compiles Programs for one session. Temporaries of all Programs share buffers: runs are in order."""

    def __init__(self, session: Session, loader: Loader[Buffer], tuning: Tuning) -> None:
        self._session = session
        self._loader = loader
        self._tuning = tuning
        self._arenas: list[Buffer] = []
        self._constants: dict[bytes, Region] = {}

    def compile(self, program: Program, states: Mapping[str, Region], weights: Mapping[str, Weight]) -> Recorded:
        """Runs in a worker thread. Raises Unsupported, OutOfMemory, or BackendError for a kernel that isn't compiled."""
        inputs, produced = Inputs(program), program.by_role(Role.OUTPUT)
        outputs = block(produced)
        inbox = self._buffer(inputs.nbytes, f"inputs of {program.name}")
        outbox = self._buffer(outputs.nbytes, f"outputs of {program.name}") if outputs.nbytes else None
        place = dict(states) | {field.name: inbox.part(field.start, field.nbytes) for field in inputs.fields}
        if outbox is not None:
            place |= place_block(program, Role.OUTPUT, outputs, outbox)
        plan: FixedPlan[Launch] | ModelPlan[Launch] = (
            self._epilogue(program, states, inputs, inbox, outbox)
            if any(op.kind.startswith(PREFIX) for op in program.ops)
            else self._by_shape(self._model(program, place, weights))
        )
        wiring = Wiring(inputs, inbox, produced, outbox, _capacities(program), plan.shape_of, plan.launches)
        recorded = Recorded(self._session, wiring, program.name)
        recorded.prepare(_likely(program, self._tuning.tokens_at_once))
        return recorded

    def reserve(self, program: Program) -> None:
        """Room for the temporaries of this Program, so that those of smaller ones need no more."""
        self._arena(self.arena_bytes(program))

    def arena_bytes(self, program: Program) -> int:
        """Of a model Program's temporaries, wherever its weights will lie: those that are launched together save some more."""
        fused = fuse(program, lambda names: False)
        return max(arena(fused).nbytes + self._scratch_bytes(fused), _LEAST_ARENA)

    def own_bytes(self, program: Program) -> list[int]:
        """The buffers that a compiled Program has for itself."""
        outputs = block(program.by_role(Role.OUTPUT)).nbytes
        return [Inputs(program).nbytes, *([outputs] if outputs else [])]

    def _scratch_bytes(self, program: Program) -> int:
        return aligned(scratch_bytes(program, self._tuning.split))

    def _by_shape(self, lowering: Lowering) -> ModelPlan[Launch]:
        tuning = lowering.tuning
        return ModelPlan(lowering.program, tuning.tokens, tuning.split, lambda shape: lower(lowering.shaped(shape)))

    def _model(self, program: Program, place: Mapping[str, Region], weights: Mapping[str, Weight]) -> Lowering:
        fused = fuse(program, lambda names: _alike([weights[name] for name in names]))
        plan = arena(fused)
        scratch = self._scratch_bytes(fused)
        room = self._arena(plan.nbytes + scratch)
        temps = {name: within(fused.values[name], offset, room) for name, offset in plan.offsets.items()}
        return Lowering(
            program=fused,
            place=dict(place) | temps,
            weights=weights,
            scratch=room.part(plan.nbytes, scratch) if scratch else None,
            tuning=self._tuning,
            shape=StepShape(1, 1, singles=True, several=False, splits=False),
            constant=self._constant,
        )

    def _epilogue(
        self, program: Program, states: Mapping[str, Region], inputs: Inputs, inbox: Region, outbox: Region | None
    ) -> FixedPlan[Launch]:
        made = Epilogue(program, self._session.gpu.facts)
        places = Places(
            states=states,
            inbox=inbox,
            inputs={field.name: field.start // 4 for field in inputs.fields},
            outbox=outbox or inbox,
            outputs={n: offset // 4 for n, offset in block(program.by_role(Role.OUTPUT)).offsets.items()},
            arena=self._arena(made.arena_bytes),
        )
        return FixedPlan(made.launches(places))

    def _arena(self, nbytes: int) -> Region:
        """Room for temporaries, in the smallest buffer that has it."""
        fitting = [buffer for buffer in self._arenas if buffer.nbytes >= nbytes]
        if not fitting:
            fitting = [self._session.device_buffer(max(nbytes, _LEAST_ARENA), "temporaries")]
            self._arenas += fitting
        return min(fitting, key=lambda buffer: buffer.nbytes).region()

    def _buffer(self, nbytes: int, what: str) -> Region:
        return self._session.device_buffer(nbytes, what).region()

    def _constant(self, data: bytes) -> Region:
        if data not in self._constants:
            self._constants[data] = self._loader.constant(data, "a table of frequencies")
        return self._constants[data]


def _alike(weights: Sequence[Weight]) -> bool:
    """Whether one launch can have them: matrices of one layout, each in one part; biases lie anywhere."""
    matrices = [weight for weight in weights if isinstance(weight, Matrix)]
    layouts = {replace(matrix.packing, zero=0.0) for matrix in matrices}
    return len(layouts) == 1 and all(len(matrix.parts) == 1 for matrix in matrices)


def _likely(program: Program, tokens_at_once: Sequence[int]) -> list[Counts]:
    """Counts that a Program is made ready for. A model's has a decode of each number of rows that kernels differ for, so that no
    step compiles one."""
    if "token_src" not in program.values:
        return [{"passes": 1}]
    likely = [dict(counts) for counts in likely_counts(program)]
    if any(op.kind == "attention" for op in program.ops):
        most, sampled = program.values["token_src"].shape[0], program.values["sample_rows"].shape[0]
        rows = [count for count in tokens_at_once if count <= min(most, sampled)]
        likely += [{"rows": n, "sampled": n, "sequences": n, "longest": 0} for n in rows]
    return [{**counts, "entries": 1} for counts in likely]


def _capacities(program: Program) -> Mapping[str, int]:
    """The most that a step's counts may be."""
    names = {"rows": "token_src", "sampled": "sample_rows", "entries": "pages", "longest": "pages"}
    found = {count: program.values[name].shape[0] for count, name in names.items() if name in program.values}
    if "query_starts" in program.values:
        found["sequences"] = program.values["query_starts"].shape[0] - 1
    return found
