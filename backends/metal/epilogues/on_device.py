"""Epilogues on a GPU: the planner's fused kernels, those by hand and MLX's ops as one graph, so that a sampled token is there for
the next step before anybody has seen it. See ``docs/decisions/007-epilogue-lowering.md``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np

from pie_edge.backend import BytesLike
from pie_edge.backends.metal.epilogues import algorithms, nodes
from pie_edge.backends.metal.epilogues.text import Written, written
from pie_edge.backends.metal.launch import LEAST, Launch, Launcher
from pie_edge.backends.metal.memory import Cell, host
from pie_edge.backends.metal.timeline import Flight, Graph, Outputs, Recorded, Timeline
from pie_edge.backends.metal.tuning import Tuning
from pie_edge.backends.shared import epilogue_algorithms
from pie_edge.backends.shared.epilogue_plan import prepare
from pie_edge.backends.shared.inputs import Inputs
from pie_edge.program.encodings import DType
from pie_edge.program.ops import Op, Program, Role
from pie_edge.sampling.dialects import kernel as plans
from pie_edge.sampling.dialects.decompose import decompose
from pie_edge.sampling.dialects.view import View, kind

_ALL_AT_ONCE = 1 << 40
"""Bytes of a round: every value is an array of its own, and what isn't needed any more is given back at once."""
_LOCAL = 64
_ELEMENTS_A_THREAD = 4
_MOST_COLUMNS = 1024


class DeviceEpilogue(Recorded):
    def __init__(
        self,
        timeline: Timeline,
        launcher: Launcher,
        tuning: Tuning,
        program: Program,
        states: Mapping[str, Cell],
        presets: bool = True,
    ) -> None:
        """With ``presets`` off nothing is looked up: every epilogue goes through the planner."""
        super().__init__(timeline)
        self._launcher = launcher
        self._tuning = tuning
        self._program = program
        self._states = {value.name: (states[value.name], value) for value in program.by_role(Role.STATE)}
        self._inputs = Inputs(program)
        self._starts = {field.name: field.start // 4 for field in self._inputs.fields}
        self._prepared = prepare(program, presets, _ALL_AT_ONCE)
        self._view = View(decompose(self._prepared.program))
        self._given = given = {name: self._starts[where] for name, where in self._prepared.given.items()}
        self._steps: list[tuple[plans.Kernel | plans.Call, Written | None]] = [
            (step, written(step, given, _lanes(step)) if isinstance(step, plans.Kernel) else None)
            for step in self._prepared.plan.steps
        ]

    @property
    def fits(self) -> bool:
        """Whether no kernel has more values than Metal hands over: each is an array of its own."""
        return all(made is None or made.kernel.fits for _, made in self._steps)

    def run(self, given: Mapping[str, BytesLike]) -> Flight:
        room = bytearray(self._inputs.nbytes)
        passes = self._inputs.fill(memoryview(room), given)["passes"]
        return self._timeline.run(partial(self._build, np.frombuffer(room, np.uint32), passes))

    def _build(self, room: np.ndarray, passes: int) -> Graph:
        states = {name: cell.shaped(value.dtype, value.shape) for name, (cell, value) in self._states.items()}
        tokens = states.pop("tokens", None)
        read = {name: mx.view(array, mx.uint32).reshape(-1) for name, array in states.items()}
        inputs = mx.array(room)
        for op in self._prepared.takes:
            assert tokens is not None
            inputs = self._taken(op, room, inputs, tokens)
        known: dict[str, mx.array] = {}
        if sampler := self._prepared.sampler:
            known["out0"] = nodes.sample(sampler, passes, self._given, read["logits"], inputs, self._launcher)
        for step, made in self._steps:
            if isinstance(step, plans.Kernel):
                assert made is not None
                known |= self._fused(step, made, passes, read, inputs, known)
            else:
                known |= self._called(step, passes, known)
        for op in self._prepared.keeps:
            assert tokens is not None
            tokens = self._kept(op, room, inputs, tokens, known, passes)
        names = [value.name for value in self._program.by_role(Role.OUTPUT)]
        return self._graph({name: self._cut(known[name], name, passes) for name in names}, tokens)

    def _graph(self, outputs: Mapping[str, mx.array], tokens: mx.array | None) -> Graph:
        changed: tuple[mx.array, ...] = ()
        if tokens is not None:
            self._states["tokens"][0].put(tokens)
            changed = (tokens,)
        return Graph((*outputs.values(), *changed), partial(self._collect, outputs))

    def _fused(
        self,
        kernel: plans.Kernel,
        made: Written,
        passes: int,
        states: Mapping[str, mx.array],
        inputs: mx.array,
        known: Mapping[str, mx.array],
    ) -> dict[str, mx.array]:
        lanes = _lanes(kernel)
        columns = 1 if kernel.reduces else min(-(-kernel.extent // (lanes * _ELEMENTS_A_THREAD)), _MOST_COLUMNS)
        launch = Launch(
            made.kernel,
            (*(states[name] for name in made.states), inputs, *(known[name] for name in made.reads)),
            tuple(((max(passes * self._size(name), LEAST),), mx.uint32) for name in made.writes),
            (columns * lanes, passes * kernel.rows, 1),
            (lanes, 1, 1),
        )
        return dict(zip(made.writes, self._launcher(launch), strict=True))

    def _called(self, call: plans.Call, passes: int, known: Mapping[str, mx.array]) -> Mapping[str, mx.array]:
        node, extent = kind(call.op), call.shapes[0][-1]
        if node in nodes.KINDS and not self._tuning.is_mlx_node(node, extent):
            return nodes.run(call, passes, known, self._launcher)
        operands = tuple(self._cut(known[place.name], place.name, passes) for place in call.operands)
        found = algorithms.run(call, passes, operands)
        return dict(zip((place.name for place in call.results), found, strict=True))

    def _size(self, name: str) -> int:
        """Words of a value of one pass."""
        return self._view.size(name)

    def _cut(self, words: mx.array, name: str, passes: int) -> mx.array:
        """A value without what makes its array long enough for kernels."""
        size = passes * self._size(name)
        return words if words.size == size else words[:size]

    def _taken(self, op: Op, room: np.ndarray, inputs: mx.array, tokens: mx.array) -> mx.array:
        """The inputs with what lies in the pool where a parameter says so."""
        value, slots, _ = op.inputs
        places = self._places(room, slots)
        wanted = np.flatnonzero(places < tokens.size).astype(np.uint32)
        if len(wanted):
            inputs[mx.array(wanted + np.uint32(self._starts[value]))] = mx.take(tokens, mx.array(places[wanted]))
        return inputs

    def _kept(
        self, op: Op, room: np.ndarray, inputs: mx.array, tokens: mx.array, known: Mapping[str, mx.array], passes: int
    ) -> mx.array:
        """The pool with an output's entries where they are to be kept."""
        name, slots, _ = op.inputs
        places = self._places(room, slots)
        wanted = np.flatnonzero(places < tokens.size).astype(np.uint32)
        if not len(wanted):
            return tokens
        kept = mx.array(tokens)
        kept[mx.array(places[wanted])] = mx.take(known[name], mx.array(wanted))
        return kept

    def _places(self, room: np.ndarray, slots: str) -> np.ndarray:
        start, value = self._starts[slots], self._program.values[slots]
        true = int(room[self._starts["counts"]]) * (value.size // value.shape[0])
        return room[start : start + true]

    def _collect(self, outputs: Mapping[str, mx.array]) -> Outputs:
        found = {}
        for name, array in outputs.items():
            value, words = self._program.values[name], host(array)
            given = (words != 0).astype(np.uint8) if value.dtype is DType.U8 else words
            data = bytearray(value.nbytes)
            data[: given.nbytes] = given.tobytes()
            found[name] = memoryview(data).cast(_FORMATS[value.dtype])
        return found


_FORMATS: Mapping[DType, Any] = {DType.F32: "f", DType.U32: "I", DType.I32: "i", DType.U8: "B"}


def _lanes(kernel: plans.Kernel) -> int:
    if not kernel.reduces:
        return _LOCAL
    return epilogue_algorithms.lanes(nodes.Gpu(), kernel.extent, sum(loop.extent for loop in kernel.loops))
