"""A device that computes nothing, in no time: what is left of a step is Python's own share."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pie_edge.backend import BytesLike, Limits, WeightSource
from pie_edge.program.encodings import DType
from pie_edge.program.ops import KINDS, Program, Role, Value

FORMATS: Mapping[DType, Any] = {DType.F32: "f", DType.I32: "i", DType.U32: "I", DType.U8: "B"}


@dataclass(frozen=True, eq=False)
class Nothing:
    """A buffer without memory."""

    nbytes: int


@dataclass(frozen=True, eq=False)
class Compiled:
    program: Program
    outputs: Mapping[str, memoryview]


class NullBackend:
    """Every output is zeros, so every greedy token is 0."""

    @property
    def limits(self) -> Limits:
        return Limits(
            backend="null",
            device="no device",
            memory=1 << 40,
            max_binding=1 << 40,
            kinds=frozenset(KINDS),
            supports=lambda encoding: True,
            kv_dtype=DType.F16,
        )

    async def allocate(self, nbytes: int, role: Role) -> Nothing:
        return Nothing(nbytes)

    def free(self, buffer: Any) -> None: ...

    def write(self, buffer: Any, data: BytesLike, offset: int = 0) -> None: ...

    async def load(self, value: Value, source: WeightSource) -> Nothing:
        return Nothing(0)

    async def compile(self, program: Program, buffers: Mapping[str, Any]) -> Compiled:
        outputs = {
            value.name: memoryview(bytes(value.nbytes)).cast(FORMATS[value.dtype])
            for value in program.by_role(Role.OUTPUT)
        }
        return Compiled(program, outputs)

    def run(self, executable: Any, inputs: Mapping[str, BytesLike]) -> Any:
        return executable

    def poll(self, ticket: Any) -> bool:
        return True

    async def read(self, ticket: Any) -> Mapping[str, memoryview]:
        await asyncio.sleep(0)  # as a real one, it lets others run before it answers
        outputs: Mapping[str, memoryview] = ticket.outputs
        return outputs

    async def close(self) -> None: ...
