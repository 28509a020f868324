"""A Backend that runs the NumPy reference: slow and exact, for tests of everything above the seam."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pie_edge.backend import Limits, WeightSource
from pie_edge.errors import OutOfMemory
from pie_edge.program import reference
from pie_edge.program.encodings import Dense, DType
from pie_edge.program.node_reference import run_nodes
from pie_edge.program.ops import KINDS, Program, Role, Value


@dataclass(eq=False)
class HostBuffer:
    data: np.ndarray[Any, np.dtype[np.uint8]]

    @property
    def nbytes(self) -> int:
        return self.data.nbytes


@dataclass(eq=False)
class Compiled:
    program: Program
    arrays: dict[str, Any]


@dataclass
class ReferenceBackend:
    """``memory`` caps what may be allocated; ``fail_next`` makes the next read raise it, ``lost`` every one. A ``sticky`` device
    isn't tried again once it is lost."""

    memory: int = 1 << 40
    used: int = 0
    runs: list[str] = field(default_factory=list)
    fail_next: Exception | None = None
    device: str = "NumPy reference"
    sticky: bool = False
    lost: Exception | None = None
    opened: int = 1
    states: list[HostBuffer] = field(default_factory=list)

    @property
    def limits(self) -> Limits:
        return Limits(
            backend="reference",
            device=self.device,
            memory=self.memory,
            max_binding=1 << 40,
            kinds=frozenset(KINDS),
            supports=lambda encoding: encoding == Dense(DType.F32),
            kv_dtype=DType.F32,
            sticky=self.sticky,
            opened=self.opened,
        )

    def footprint(
        self, states: Sequence[int], weights: Sequence[Value], largest: Program | None, memory: int = 0
    ) -> int:
        return self.used + sum(states) + sum(4 * value.size for value in weights)

    async def expect(self, weights: Sequence[Value], largest: Program) -> None: ...

    async def allocate(self, nbytes: int, role: Role) -> HostBuffer:
        if self.used + nbytes > self.memory:
            raise OutOfMemory(f"{nbytes} bytes of {role} were asked for; {self.memory - self.used} are free")
        self.used += nbytes
        self.states.append(HostBuffer(np.zeros(nbytes, np.uint8)))
        return self.states[-1]

    def reopen(self) -> None:
        """What a device that was lost and is opened again holds: zeros."""
        self.opened += 1
        for state in self.states:
            state.data[:] = 0

    def free(self, buffer: HostBuffer) -> None:
        self.used -= buffer.nbytes

    def write(self, buffer: HostBuffer, data: bytes | memoryview, offset: int = 0) -> None:
        raw = np.frombuffer(data, np.uint8)
        buffer.data[offset : offset + len(raw)] = raw

    def download(self, spans: Sequence[tuple[HostBuffer, int, int]]) -> dict[str, Any]:
        self.runs.append("download")
        for buffer, offset, nbytes in spans:
            if offset < 0 or offset + nbytes > buffer.nbytes:
                raise ValueError(f"{nbytes} bytes at {offset} aren't all in a buffer of {buffer.nbytes}")
        parts = [buffer.data[offset : offset + nbytes].copy() for buffer, offset, nbytes in spans]
        return {"outputs": {str(index): part for index, part in enumerate(parts)}}

    async def load(self, value: Value, source: WeightSource) -> Any:
        rows = value.shape[0] if len(value.shape) == 2 else 1
        return source.planes(0, rows)["values"].reshape(value.shape)

    async def compile(self, program: Program, buffers: Mapping[str, Any]) -> Compiled:
        arrays = {}
        for value in program.values.values():
            if value.role is Role.WEIGHT:
                arrays[value.name] = buffers[value.name]
            elif value.role is Role.STATE:
                arrays[value.name] = buffers[value.name].data.view(reference.NUMPY[value.dtype]).reshape(value.shape)
        return Compiled(program, arrays)

    def run(self, executable: Compiled, inputs: Mapping[str, bytes | memoryview]) -> dict[str, Any]:
        self.runs.append(executable.program.name)
        program, arrays = executable.program, executable.arrays
        if "step" in inputs:
            found = reference.run(program, arrays, inputs["step"])
            return {"outputs": {v.name: found[v.name] for v in program.by_role(Role.OUTPUT)}}
        given = {
            v.name: np.frombuffer(inputs[v.name], reference.NUMPY[v.dtype]).reshape(v.shape)
            for v in program.by_role(Role.INPUT)
        }
        if program.name.startswith("copy-"):
            for op in program.ops:
                reference._MEANING[op.kind](op, *(given[name] for name in op.inputs), arrays[op.outputs[0]])
            return {"outputs": {}}
        # A result may be a view of a state, which the next step overwrites.
        return {"outputs": {name: np.array(found) for name, found in run_nodes(program, arrays | given).items()}}

    def poll(self, ticket: dict[str, Any]) -> bool:
        return True

    async def read(self, ticket: dict[str, Any]) -> Mapping[str, memoryview]:
        await asyncio.sleep(0)
        failure, self.fail_next = self.fail_next or self.lost, None
        if failure is not None:
            raise failure
        return {name: memoryview(np.ascontiguousarray(a).reshape(-1)) for name, a in ticket["outputs"].items()}

    async def close(self) -> None:
        self.used = 0
