"""What self-tests are made of: one Program through every kernel, over made-up weights and states, and digests of its outputs
that are compared with stored ones, which come from the NumPy reference (``python -m tests.support.selftest_answers``)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pie_edge.program.encodings import Dense, DType, Encoding, planes
from pie_edge.program.examined import fault
from pie_edge.program.ops import Program, Role, Value
from pie_edge.program.trace import Trace

F32 = Dense(DType.F32)
_DTYPES = {np.dtype(np.uint32): DType.U32, np.dtype(np.float16): DType.F16}


def wave(count: int, seed: int, low: float = -1.0, high: float = 1.0) -> NDArray[np.float32]:
    """Numbers that look like noise and are the same everywhere."""
    steps = (np.arange(count, dtype=np.int64) * 7919 + seed * 104729) % 997
    return (low + (high - low) * steps / 996).astype(np.float32)


@dataclass(frozen=True)
class MadeWeight:
    """A weight source whose planes are waves."""

    shape: tuple[int, ...]
    target: Encoding
    seed: int
    encoding: str = "made"

    def raw(self, first: int, count: int) -> memoryview:
        raise NotImplementedError("it is in no file")

    def planes(self, first: int, count: int) -> Mapping[str, Any]:
        rows, columns = self.shape if len(self.shape) == 2 else (1, self.shape[0])
        return {
            p.name: self._plane(p.name, p.dtype, p.shape)[first : first + count]
            for p in planes(self.target, rows, columns)
        }

    def _plane(self, name: str, dtype: DType, shape: tuple[int, int]) -> NDArray[Any]:
        count = shape[0] * shape[1]
        if name == "codes":
            return wave(count, self.seed, 0, (1 << getattr(self.target, "bits", 8)) - 1).astype(np.uint8).reshape(shape)
        values = wave(count, self.seed + len(name)).reshape(shape)
        if dtype is DType.BF16:
            return (values.view(np.uint32) >> 16).astype(np.uint16)
        # Scaled codes should be about as large as dense values.
        scaled = values if isinstance(self.target, Dense) or name == "minima" else values / 16
        return scaled.astype(np.float16 if dtype is DType.F16 else np.float32)


def ends(values: NDArray[Any]) -> list[float]:
    """The first and the last few values of an output, which stand for it."""
    flat = values.reshape(-1)
    return [float(v) for v in (*flat[:6], *flat[-6:])]


def scattered(values: NDArray[Any]) -> list[float]:
    """Up to a hundred from all over it: an odd number apart, so that all places of a tile are met."""
    flat = values.reshape(-1)
    return [float(v) for v in flat[:: flat.size // 100 | 1]]


class Recorder:
    """A trace whose weights and states are made up as they are named."""

    def __init__(self) -> None:
        self.trace = Trace("self-test")
        self.sources: dict[str, MadeWeight] = {}
        self.states: dict[str, NDArray[Any]] = {}
        self._shown: list[Value] = []

    def weight(self, name: str, shape: tuple[int, ...], encoding: Encoding = F32) -> Value:
        self.sources[name] = MadeWeight(shape, encoding, seed=len(self.sources))
        return self.trace.weight(name, shape, encoding)

    def made_state(self, name: str, shape: tuple[int, ...]) -> Value:
        return self.state(name, wave(math.prod(shape), len(self.states)).reshape(shape))

    def state(self, name: str, values: NDArray[Any]) -> Value:
        self.states[name] = values
        return self.trace.state(name, _DTYPES.get(values.dtype, DType.F32), values.shape)

    def show(self, value: Value) -> Value:
        """Let it be an output."""
        self._shown.append(value)
        return value

    def program(self) -> Program:
        return as_outputs(self.trace.build(), self._shown)


@dataclass(frozen=True)
class Examination:
    """The Program, what it works on, and its inputs by name. What fused kernels leave out stays a temporary."""

    program: Program
    sources: Mapping[str, MadeWeight]
    states: Mapping[str, NDArray[Any]]
    inputs: Mapping[str, bytes]
    kept: tuple[str, ...] = ()
    """States that are looked at as well, once it has run."""
    digest: Callable[[NDArray[Any]], list[float]] = field(default=ends)


def as_outputs(program: Program, shown: Iterable[Value]) -> Program:
    outputs = {v.name: replace(v, role=Role.OUTPUT) for v in shown}
    return replace(program, values={**program.values, **outputs})


def first_fault(
    exam: Examination, outputs: Mapping[str, memoryview], answers: Mapping[str, list[float]], tolerance: float
) -> str:
    """Names the first kernel whose result is wrong; empty if none is."""
    for op in exam.program.ops:
        for name in op.outputs:
            if name in outputs:
                found = exam.digest(np.asarray(outputs[name]))
                wrong = fault(exam.program, op, found, answers[name], tolerance)
                if wrong:
                    return wrong
    return ""


def stored(answers: Path) -> Any:
    """What lies in a file of answers."""
    return json.loads(answers.read_text(encoding="utf-8"))
