"""A compiled model Program: a walk over its ops, which gives one graph for each step. True counts are known before a graph is
built, so that every array has exactly the step's rows; outputs are as large as the Program says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from pie_edge.backend import BytesLike
from pie_edge.backends.metal.context import Context
from pie_edge.backends.metal.device import Mode
from pie_edge.backends.metal.launch import Launcher
from pie_edge.backends.metal.memory import DTYPES, Cell, host
from pie_edge.backends.metal.ops import Function, functions
from pie_edge.backends.metal.timeline import Flight, Graph, Outputs, Recorded, Timeline
from pie_edge.backends.metal.tuning import Tuning
from pie_edge.backends.metal.weights import Vector, Weight
from pie_edge.backends.shared.fuse import fuse_appends
from pie_edge.backends.shared.inputs import Inputs
from pie_edge.backends.shared.shapes import counted_rows
from pie_edge.program.ops import KINDS, Op, Program, Role, Value
from pie_edge.program.reference import NUMPY, unpack

_WHOLE = frozenset({"tokens", "K", "V", "key_positions", "matrices", "tail", "qkv_tail", "a_tail", "b_tail"})
"""Operands that are states of their own, whatever the step's rows; other states that are read have a row for each."""


class Model(Recorded):
    """Bound to its states and weights. Runs are built and scheduled on the timeline's thread."""

    def __init__(
        self,
        timeline: Timeline,
        program: Program,
        mode: Mode,
        launcher: Launcher,
        tuning: Tuning,
        states: Mapping[str, Cell],
        weights: Mapping[str, Weight],
    ) -> None:
        """Raises ValueError for a state that is as large as no value of the Program."""
        super().__init__(timeline)
        self._program = program
        self._mode = mode
        self._launcher = launcher
        self._tuning = tuning
        self._states = {value.name: (states[value.name], value) for value in program.by_role(Role.STATE)}
        self._weights: dict[str, Any] = {n: w.array if isinstance(w, Vector) else w for n, w in weights.items()}
        self._vectors = {n: w.values for n, w in weights.items() if isinstance(w, Vector)}
        self._inputs = Inputs(program)
        fused = fuse_appends(program) if mode is Mode.KERNELS else program
        self._steps = [(op, function, self._rows_read(op)) for op, function in functions(fused, mode)]
        self._written = dict.fromkeys(n for op in program.ops for n in op.outputs if n in self._states)

    def run(self, given: Mapping[str, BytesLike]) -> Flight:
        room = memoryview(bytearray(self._inputs.nbytes))
        self._inputs.fill(room, given)
        return self._timeline.run(partial(self.build, room, "step" in given))

    def drop(self) -> None:
        """It won't run again: what holds it holds no weights."""
        self._weights, self._vectors = {}, {}

    def _rows_read(self, op: Op) -> tuple[str, ...]:
        """States that the op reads the step's rows of."""
        counted = counted_rows(self._program)
        named = op.named if op.kind in KINDS else {name: name for name in op.inputs}
        return tuple(
            name for role, name in named.items() if name in self._states and name in counted and role not in _WHOLE
        )

    def build(self, room: memoryview, packed: bool) -> Graph:
        context = Context(
            self._program, self._mode, self._unpacked(room, packed), self._vectors, self._launcher, self._tuning
        )
        known: dict[str, Any] = dict(self._weights)
        try:
            for name, (cell, value) in self._states.items():
                known[name] = (cell.take if name in self._written else cell.shaped)(value.dtype, value.shape)
            for op, function, by_row in self._steps:
                self._apply(context, known, op, function, by_row)
        finally:
            # Also where an op can't be built: others' pages and states are in these arrays.
            for name in self._written:
                if name in known:
                    self._states[name][0].put(known[name])
        outputs = {value.name: known[value.name] for value in self._program.by_role(Role.OUTPUT)}
        return Graph(tuple(known[name] for name in (*outputs, *self._written)), partial(self._collect, outputs))

    def _unpacked(self, room: memoryview, packed: bool) -> dict[str, Any]:
        if packed:
            return unpack(self._program, room)
        found = {}
        for field in self._inputs.fields:
            value = self._program.values[field.name]
            part = room[field.start : field.start + field.nbytes]
            found[field.name] = array_of(part, value)
        return found

    def _apply(
        self, context: Context, known: dict[str, Any], op: Op, function: Function, by_row: tuple[str, ...]
    ) -> None:
        rows = len(context.inputs["token_src"]) if by_row else 0
        operands = [
            context.device(name) if name in context.inputs else known[name][:rows] if name in by_row else known[name]
            for name in op.inputs
        ]
        operands += [known[name] for name in op.outputs if name in self._states]
        found = function(context, op, *operands) if _has_rows(op, operands) else self._nothing(op, known)
        known.update(zip(op.outputs, found, strict=True))

    def _nothing(self, op: Op, known: Mapping[str, Any]) -> Iterator[mx.array]:
        """What an op gives of no rows: none, and states as they are."""
        for name in op.outputs:
            value = self._program.values[name]
            yield known[name] if name in self._states else mx.zeros((0, *value.shape[1:]), DTYPES[value.dtype])

    def _collect(self, outputs: Mapping[str, mx.array]) -> Outputs:
        found: Outputs = {}
        for name, array in outputs.items():
            value = self._program.values[name]
            room = bytearray(value.nbytes)
            given = host(array).reshape(-1)
            array_of(memoryview(room), value).reshape(-1)[: given.size] = given
            found[name] = memoryview(np.frombuffer(room, NUMPY[value.dtype]))
        return found


def _has_rows(op: Op, operands: Sequence[Any]) -> bool:
    """Whether there is anything to compute: a chunk of a prompt reads no row out, and MLX divides by zero where some of its ops
    have no rows. The delta rule may have tokens to run again all the same."""
    return op.kind == "gated_delta" or all(not isinstance(x, mx.array) or x.shape[:1] != (0,) for x in operands[:2])


def array_of(data: memoryview, value: Value) -> NDArray[Any]:
    """The bytes of a value as an array of its shape."""
    return np.frombuffer(data, NUMPY[value.dtype]).reshape(value.shape)
