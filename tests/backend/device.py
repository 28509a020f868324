"""Running a case, or a model, on any backend through nothing but the protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pie_edge.backend import Backend, Buffer, WeightSource
from pie_edge.model import registry
from pie_edge.model.spec import Cache, Family
from pie_edge.program import reference
from pie_edge.program.encodings import DType, Encoding
from pie_edge.program.expand import expand
from pie_edge.program.ops import Op, Program, Role, Value
from pie_edge.program.step import Bucket, StepInputs, StepLayout
from pie_edge.weights.checkpoint import open_checkpoint
from pie_edge.weights.source import weight_sources
from tests.backend.cases import Case
from tests.support.oracle_run import PAGE, TAIL, cache_for, with_states

Array = NDArray[Any]


async def put(backend: Backend, array: Array) -> Buffer:
    """A state that holds ``array``."""
    buffer = await backend.allocate(array.nbytes, Role.STATE)
    backend.write(buffer, array.tobytes())
    return buffer


async def fetch(backend: Backend, buffer: Buffer, like: Array) -> Array:
    """A state's contents: gathered as one long row."""
    values = (
        Value("x", Role.STATE, DType.F32, (1, like.size)),
        Value("rows", Role.INPUT, DType.U32, (1,)),
        Value("y", Role.OUTPUT, DType.F32, (1, like.size)),
    )
    program = Program(f"fetch-{like.size}", {v.name: v for v in values}, (Op("gather_rows", ("x", "rows"), ("y",)),))
    executable = await backend.compile(program, {"x": buffer})
    found = await backend.read(backend.run(executable, {"rows": bytes(4)}))
    return np.frombuffer(found["y"], like.dtype).reshape(like.shape)


async def run_case(backend: Backend, case: Case) -> dict[str, Array]:
    """Its results as the backend computes them, in the same form as ``case.expected()``."""
    program = case.program
    buffers: dict[str, Any] = {name: await put(backend, array) for name, array in case.states.items()}
    for value in program.by_role(Role.WEIGHT):
        buffers[value.name] = await backend.load(value, case.sources[value.name])
    executable = await backend.compile(program, buffers)
    outputs = await backend.read(backend.run(executable, {"step": case.block}))
    found = {
        value.name: np.frombuffer(outputs[value.name], reference.NUMPY[value.dtype]).reshape(value.shape)
        for value in program.by_role(Role.OUTPUT)
    }
    for name in case.written:
        found[name] = await fetch(backend, buffers[name], case.states[name])
    for buffer in buffers.values():
        backend.free(buffer)
    return found


def assert_close(found: Array, expected: Array, case: Case) -> None:
    """Equal to within the case's bound or tolerance. Rows that the expectation lacks are padding."""
    if not len(expected):
        return
    found = found[: len(expected)].reshape(len(expected), -1)
    expected = expected.reshape(len(expected), -1)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    error = np.abs(found.astype(np.float64) - expected.astype(np.float64))
    allowed = case.bound
    if allowed is not None:
        # Both results are rounded at last, whatever they are sums of.
        allowed = allowed + np.abs(np.where(np.isfinite(expected), expected, 0)) * 2.0**-23
    else:
        size = np.abs(np.where(np.isfinite(expected), expected, 0)).max(axis=1, keepdims=True)
        allowed = case.tolerance * np.maximum(size.astype(np.float64), 1e-30)
    worst = np.nanmax(error / allowed, initial=0)
    assert worst <= 1, f"{case.trace.name}: the largest error is {worst:.2f} times what is allowed"


@dataclass(frozen=True)
class LoadedModel:
    """A model whose weights are on a backend."""

    backend: Backend
    spec: Any
    family: Family
    encodings: Mapping[str, Encoding]
    weights: Mapping[str, Any]

    @classmethod
    async def load(
        cls, backend: Backend, spec: Any, family: Family, sources: Mapping[str, tuple[Encoding, WeightSource]]
    ) -> LoadedModel:
        encodings = {name: encoding for name, (encoding, _) in sources.items()}
        one = Bucket(1, 1, 1, 1, recurrent=int(spec.recurrent))
        program = family.trace(spec, one, Cache(2, PAGE, backend.limits.kv_dtype, 1, 1, 2, TAIL), encodings)
        await backend.expect(program.by_role(Role.WEIGHT), program)
        weights = {v.name: await backend.load(v, sources[v.name][1]) for v in program.by_role(Role.WEIGHT)}
        return cls(backend, spec, family, encodings, weights)

    @classmethod
    async def from_file(cls, backend: Backend, path: Path, context: int = 0) -> LoadedModel:
        """A checkpoint, each weight in the narrowest exact encoding that the backend takes."""
        checkpoint = open_checkpoint(path)
        facts = registry.facts(checkpoint, context)
        spec, family = registry.read(facts), registry.family(facts)
        found = weight_sources(checkpoint.tensors, family.weights(spec), backend.limits.supports)
        return await cls.load(backend, spec, family, {name: (source.target, source) for name, source in found.items()})

    async def logits(self, *steps: StepInputs) -> Array:
        """Those of the last step's sampled rows, the steps following each other on an empty cache."""
        backend = self.backend
        if self.spec.recurrent:
            steps = tuple(map(with_states, steps))
        cache = cache_for(steps, backend.limits.kv_dtype)
        programs = [self.family.trace(self.spec, step.counts, cache, self.encodings) for step in steps]
        states = {v.name: await backend.allocate(v.nbytes, Role.STATE) for v in programs[0].by_role(Role.STATE)}
        for program, step in zip(programs, steps, strict=True):
            executable = await backend.compile(expand(program, backend.limits.kinds), {**self.weights, **states})
            block = memoryview(StepLayout(step.counts).pack(step)).cast("B")
            await backend.read(backend.run(executable, {"step": block}))
        logits = await fetch(backend, states["logits"], np.zeros(programs[0].values["logits"].shape, np.float32))
        for buffer in states.values():
            backend.free(buffer)
        return logits[: steps[-1].counts.sampled]
