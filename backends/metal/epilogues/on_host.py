"""Epilogues on MLX's CPU device: its arrays lie in the host's memory, so NumPy runs the nodes there, as it does for the cpu
backend."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from numpy.typing import NDArray

from pie_edge.backend import BytesLike
from pie_edge.backends.metal.memory import Cell, host
from pie_edge.backends.metal.timeline import Flight, Outputs, Recorded, Timeline
from pie_edge.backends.shared.host_epilogue import HostEpilogue
from pie_edge.backends.shared.inputs import Inputs
from pie_edge.program.ops import Program, Role


class HostedEpilogue(Recorded):
    def __init__(self, timeline: Timeline, program: Program, states: Mapping[str, Cell]) -> None:
        """Raises Unsupported."""
        super().__init__(timeline)
        self._epilogue = HostEpilogue(program, "Metal")
        self._states = {value.name: (states[value.name], value) for value in program.by_role(Role.STATE)}
        self._inputs = Inputs(program)

    def run(self, given: Mapping[str, BytesLike]) -> Flight:
        room = memoryview(bytearray(self._inputs.nbytes))
        self._inputs.fill(room, given)
        return self._timeline.read(partial(self._compute, room))

    def _compute(self, room: memoryview) -> Outputs:
        inputs = {field.name: room[field.start : field.start + field.nbytes] for field in self._inputs.fields}
        states: dict[str, NDArray[Any]] = {
            name: host(cell.shaped(value.dtype, value.shape)) for name, (cell, value) in self._states.items()
        }
        return self._epilogue.run(states, inputs)
