"""From a Program and its buffers to what runs on a session: see ``shared/compiler.py``. Likely step shapes are recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pie_edge.backends.shared.compiler import NO_SHAPE, BaseCompiler, Boxes
from pie_edge.backends.shared.fuse import fuse
from pie_edge.backends.shared.inputs import Inputs
from pie_edge.backends.shared.placement import place_block
from pie_edge.backends.shared.slots import Wiring
from pie_edge.backends.shared.weights import Weight, together
from pie_edge.backends.vulkan.epilogue import Epilogue
from pie_edge.backends.vulkan.executable import GRID_BYTES, MOST_GRIDS, Recorded
from pie_edge.backends.vulkan.launch import Launch
from pie_edge.backends.vulkan.lower import LOWER
from pie_edge.backends.vulkan.lowering import Lowering
from pie_edge.backends.vulkan.memory import Buffer, Region
from pie_edge.program.ops import Program, Role


class Compiler(BaseCompiler[Buffer, Launch, Recorded]):
    table = LOWER

    def _recorded(self, program: Program, wiring: Wiring[Buffer, Launch]) -> Recorded:
        recorded = Recorded(self._session, wiring)
        recorded.prepare(wiring.plan.likely())
        return recorded

    def own_bytes(self, program: Program) -> list[int]:
        """With one slot, which has the inputs, the outputs, and room for grids."""
        slot = -(-Inputs(program).nbytes // GRID_BYTES) * GRID_BYTES + MOST_GRIDS * GRID_BYTES
        inbox, *outputs = super().own_bytes(program)
        return [inbox, slot, *outputs, *outputs]

    def _inbox_bytes(self, inputs: Inputs) -> int:
        return inputs.block.nbytes + MOST_GRIDS * GRID_BYTES

    def _inputs_place(self, program: Program, boxes: Boxes[Buffer]) -> dict[str, Region]:
        """Each begins anew: bindings are aligned."""
        return place_block(program, Role.INPUT, boxes.inputs.block, boxes.inbox)

    def _lowering(
        self, program: Program, place: Mapping[str, Region], weights: Mapping[str, Weight], boxes: Boxes[Buffer]
    ) -> Lowering:
        fused = fuse(program, lambda names: together([weights[name] for name in names], self._max_binding))
        temporaries, scratch = self._temporaries(fused)
        return Lowering(
            program=fused,
            place={**place, **self._inputs_place(program, boxes), **temporaries},
            weights=weights,
            scratch=scratch,
            tuning=self._tuning,
            facts=self._session.gpu.facts,
            shape=NO_SHAPE,
            constant=self._constant,
        )

    def _epilogue(self, program: Program, place: Mapping[str, Region], boxes: Boxes[Buffer]) -> Sequence[Launch]:
        made = Epilogue(program, self._session.gpu.facts)
        return made.launches(self._places(program, place, boxes, boxes.outbox or boxes.inbox, made.arena_bytes))
