"""A device that computes nothing, in no time: what is left of a step is Python's own share.

It is not shipped: nobody should ever be served by it, and what measures or proves the layers above a device names it.
Standard library only, so that it also runs in a browser.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pie_edge.backend import BytesLike, Limits, WeightSource
from pie_edge.program.encodings import DType
from pie_edge.program.ops import KINDS, Program, Role, Value

_CODES = {DType.F32: "f", DType.I32: "i", DType.U32: "I", DType.U8: "B"}


@dataclass(frozen=True, eq=False)
class Nothing:
    """A buffer without memory."""

    nbytes: int


@dataclass(frozen=True, eq=False)
class Compiled:
    program: Program
    outputs: Mapping[str, memoryview]


@dataclass(frozen=True, eq=False)
class Ran:
    """A run, and the loop's time at which it ends."""

    outputs: Mapping[str, memoryview]
    end: float


class NullBackend:
    """Every element of every output is ``value``, so every greedy token is, too. A model's step takes ``seconds``, one after
    the other."""

    limits = Limits(
        backend="null",
        device="no device",
        memory=1 << 40,
        max_binding=1 << 40,
        kinds=frozenset(KINDS),
        supports=lambda encoding: True,
        kv_dtype=DType.F16,
    )

    def __init__(self, value: int = 0, seconds: float = 0.0) -> None:
        self._value = value
        self._seconds = seconds
        self._end = 0.0

    def footprint(
        self, states: Sequence[int], weights: Sequence[Value], largest: Program | None, memory: int = 0
    ) -> int:
        return 0

    async def expect(self, weights: Sequence[Value], largest: Program) -> None: ...

    async def allocate(self, nbytes: int, role: Role) -> Nothing:
        return Nothing(nbytes)

    def free(self, buffer: Any) -> None: ...

    def write(self, buffer: Any, data: BytesLike, offset: int = 0) -> None: ...

    def download(self, spans: Sequence[tuple[Any, int, int]]) -> Ran:
        return Ran({str(index): memoryview(bytes(nbytes)) for index, (_, _, nbytes) in enumerate(spans)}, self._end)

    async def load(self, value: Value, source: WeightSource) -> Nothing:
        return Nothing(0)

    async def compile(self, program: Program, buffers: Mapping[str, Any]) -> Compiled:
        outputs = {}
        for value in program.by_role(Role.OUTPUT):
            code = _CODES[value.dtype]
            outputs[value.name] = memoryview(array(code, [self._value]) * (value.nbytes // array(code).itemsize))
        return Compiled(program, outputs)

    def run(self, executable: Any, inputs: Mapping[str, BytesLike]) -> Ran:
        if "step" in inputs:
            self._end = max(asyncio.get_running_loop().time(), self._end) + self._seconds
        return Ran(executable.outputs, self._end)

    def poll(self, ticket: Any) -> bool:
        return asyncio.get_running_loop().time() >= float(ticket.end)

    async def read(self, ticket: Any) -> Mapping[str, memoryview]:
        # Even a wait for nothing lets others run before it answers, as a real device does.
        await asyncio.sleep(max(ticket.end - asyncio.get_running_loop().time(), 0))
        found: Mapping[str, memoryview] = ticket.outputs
        return found

    async def close(self) -> None: ...
