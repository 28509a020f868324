"""From a Program and its buffers to what runs on a session: see ``shared/compiler.py``. Likely step shapes are planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pie_edge.backends.shared.compiler import NO_SHAPE, BaseCompiler, Boxes
from pie_edge.backends.shared.fuse import fuse
from pie_edge.backends.shared.placement import aligned
from pie_edge.backends.shared.scratch import scratch_bytes
from pie_edge.backends.shared.slots import Wiring
from pie_edge.backends.shared.weights import Matrix, Weight, together
from pie_edge.backends.wgpu.absorb import absorb, sides
from pie_edge.backends.wgpu.epilogue import Epilogue
from pie_edge.backends.wgpu.executable import Planned
from pie_edge.backends.wgpu.lower import LOWER
from pie_edge.backends.wgpu.lower_linear import MOST_UNIFORM
from pie_edge.backends.wgpu.lower_recurrent import gates_bytes
from pie_edge.backends.wgpu.lowering import Lowering
from pie_edge.backends.wgpu.memory import Buffer, Region
from pie_edge.backends.wgpu.plan import Launch
from pie_edge.program.ops import Program, Role
from pie_edge.program.plan import Arena, arena


class Compiler(BaseCompiler[Buffer, Launch, Planned]):
    table = LOWER
    slack = MOST_UNIFORM
    """A uniform buffer may reach past the temporaries' end."""
    _nothing: Buffer | None = None

    def _recorded(self, program: Program, wiring: Wiring[Buffer, Launch]) -> Planned:
        planned = Planned(self._session, wiring, self._max_binding)
        planned.prepare(wiring.plan.likely())
        return planned

    def own_bytes(self, program: Program) -> list[int]:
        """With one slot, and parameters of two step shapes."""
        inbox, *outputs = super().own_bytes(program)
        parameters = 256 * len(program.ops)
        return [inbox, parameters, parameters, *outputs, *outputs]

    def _arenas_bytes(self, program: Program) -> Sequence[int]:
        fused = absorb(fuse(program, lambda names: False), lambda name: False)
        first, second = _plans(fused)
        return [first.nbytes + self._scratch_bytes(fused), second.nbytes]

    def _temporaries(self, program: Program) -> tuple[dict[str, Region], Region | None]:
        (first, second), scratch = _plans(program), self._scratch_bytes(program)
        room, other = self._arena(first.nbytes + scratch), self._arena(second.nbytes, 1)
        temporaries = {**self._within(program, first, room), **self._within(program, second, other)}
        return temporaries, room.part(first.nbytes, scratch) if scratch else None

    def _scratch_bytes(self, program: Program) -> int:
        return aligned(max(scratch_bytes(program, self._tuning.split), gates_bytes(program)))

    def _lowering(
        self, program: Program, place: Mapping[str, Region], weights: Mapping[str, Weight], boxes: Boxes[Buffer]
    ) -> Lowering:
        def single(name: str) -> bool:
            weight = weights[name]
            return isinstance(weight, Matrix) and len(weight.parts) == 1

        fused = fuse(program, lambda names: together([weights[name] for name in names], self._max_binding))
        fused = absorb(fused, single)
        temporaries, scratch = self._temporaries(fused)
        return Lowering(
            program=fused,
            place={**place, **temporaries},
            step=boxes.inbox,
            words={name: region.offset // 4 for name, region in self._inputs_place(program, boxes).items()},
            weights=weights,
            scratch=scratch,
            tuning=self._tuning,
            max_binding=self._max_binding,
            shape=NO_SHAPE,
            constant=self._constant,
        )

    def _epilogue(self, program: Program, place: Mapping[str, Region], boxes: Boxes[Buffer]) -> Sequence[Launch]:
        made = Epilogue(program, self._session.facts)
        return made.launches(self._places(program, place, boxes, boxes.outbox or self._spare(), made.arena_bytes))

    def _spare(self) -> Region:
        """What is bound as outputs where there are none."""
        if self._nothing is None:
            self._nothing = self._session.buffer(16, "no outputs")
        return self._nothing.region()


def _plans(program: Program) -> tuple[Arena, Arena]:
    """Where the temporaries of each side lie."""
    of, values = sides(program), program.values

    def alone(side: int) -> Arena:
        others = {name: replace(values[name], role=Role.STATE) for name, other in of.items() if other != side}
        return arena(replace(program, values={**values, **others}))

    return alone(0), alone(1)
