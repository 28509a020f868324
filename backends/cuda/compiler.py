"""From a Program and its buffers to what runs on a session: see ``shared/compiler.py``. Likely steps are captured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pie_edge.backends.cuda.epilogue import Epilogue
from pie_edge.backends.cuda.executable import Recorded
from pie_edge.backends.cuda.launch import Launch
from pie_edge.backends.cuda.lower import LOWER
from pie_edge.backends.cuda.lower_tile import halved_bytes
from pie_edge.backends.cuda.lowering import Lowering
from pie_edge.backends.cuda.memory import Buffer, Region
from pie_edge.backends.shared.compiler import NO_SHAPE, BaseCompiler, Boxes
from pie_edge.backends.shared.fuse import fuse
from pie_edge.backends.shared.inputs import Counts
from pie_edge.backends.shared.placement import aligned
from pie_edge.backends.shared.shapes import likely_counts
from pie_edge.backends.shared.slots import Wiring
from pie_edge.backends.shared.weights import Matrix, Weight
from pie_edge.program.ops import Program


class Compiler(BaseCompiler[Buffer, Launch, Recorded]):
    table = LOWER

    def _recorded(self, program: Program, wiring: Wiring[Buffer, Launch]) -> Recorded:
        recorded = Recorded(self._session, wiring, _capacities(program))
        recorded.prepare(_likely(program, self._tuning.tokens_at_once))
        return recorded

    def _scratch_bytes(self, program: Program) -> int:
        return max(super()._scratch_bytes(program), aligned(halved_bytes(program)))

    def _lowering(
        self, program: Program, place: Mapping[str, Region], weights: Mapping[str, Weight], boxes: Boxes[Buffer]
    ) -> Lowering:
        fused = fuse(program, lambda names: _alike([weights[name] for name in names]))
        temporaries, scratch = self._temporaries(fused)
        return Lowering(
            program=fused,
            place={**place, **self._inputs_place(program, boxes), **temporaries},
            weights=weights,
            scratch=scratch,
            tuning=self._tuning,
            shape=NO_SHAPE,
            constant=self._constant,
        )

    def _epilogue(self, program: Program, place: Mapping[str, Region], boxes: Boxes[Buffer]) -> Sequence[Launch]:
        made = Epilogue(program, self._session.gpu.facts)
        return made.launches(self._places(program, place, boxes, boxes.outbox or boxes.inbox, made.arena_bytes))


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
    return likely


def _capacities(program: Program) -> Mapping[str, int]:
    """The most that a step's counts may be."""
    names = {"rows": "token_src", "sampled": "sample_rows", "longest": "pages"}
    found = {count: program.values[name].shape[0] for count, name in names.items() if name in program.values}
    if "query_starts" in program.values:
        found["sequences"] = program.values["query_starts"].shape[0] - 1
    return found
