"""The cpu backend: the Backend protocol over kernels in linear memory, a crew of threads and a work queue."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pie_edge.backend import BytesLike, Limits, WeightSource
from pie_edge.backends.cpu import module
from pie_edge.backends.cpu.crew import Crew
from pie_edge.backends.cpu.device import default_threads, device_name, physical_memory
from pie_edge.backends.cpu.executable import AnyExecutable, Arena, compile_program
from pie_edge.backends.cpu.lowering import KINDS
from pie_edge.backends.cpu.memory import ADDRESSABLE, LinearMemory, Region
from pie_edge.backends.cpu.queue import Ticket, WorkQueue
from pie_edge.backends.cpu.weights import Loader, Weight, allocate, supports
from pie_edge.errors import UsageError
from pie_edge.program.encodings import DType
from pie_edge.program.ops import Program, Role, Value


class CpuBackend:
    """Made by ``open_cpu``. Everything that touches the device runs on the queue's thread, in order."""

    def __init__(self, memory: LinearMemory, crew: Crew, device: str) -> None:
        self._memory = memory
        self._crew = crew
        self._queue = WorkQueue("pie-edge-cpu-0")
        self._arena = Arena(memory)
        self._loader = Loader(memory, crew.run)
        self._executables: dict[tuple[str, tuple[int, ...]], AnyExecutable] = {}
        self._limits = Limits(
            backend="cpu",
            device=device,
            memory=memory.available,
            max_binding=memory.limit,
            kinds=KINDS,
            supports=supports,
            kv_dtype=DType.F32,
        )

    @property
    def limits(self) -> Limits:
        return self._limits

    async def allocate(self, nbytes: int, role: Role) -> Region:
        return self._memory.allocate(nbytes, f"a {role} of {nbytes} bytes")

    def free(self, buffer: Region | Weight) -> None:
        """After the runs before it."""
        region = buffer.region if isinstance(buffer, Weight) else buffer
        self._queue.put(lambda: self._memory.free(region))

    def write(self, buffer: Region, data: BytesLike, offset: int = 0) -> None:
        copied = bytes(data)
        if offset < 0 or offset + len(copied) > buffer.nbytes:
            raise ValueError(f"{len(copied)} bytes at {offset} don't fit a buffer of {buffer.nbytes}")

        def copy() -> None:
            self._memory.view(buffer.offset + offset, len(copied))[:] = copied

        self._queue.put(copy)

    async def load(self, value: Value, source: WeightSource) -> Weight:
        weight = allocate(value, self._memory)
        try:
            await self._queue.put(lambda: self._loader.load(weight, source)).wait()
        except BaseException:
            self.free(weight)
            raise
        return weight

    async def compile(self, program: Program, buffers: Mapping[str, Region | Weight]) -> AnyExecutable:
        used = {name: buffers[name] for name in program.values if name in buffers}
        key = (program.digest, tuple(id(buffer) for buffer in used.values()))
        if key not in self._executables:
            self._executables[key] = await asyncio.to_thread(
                compile_program, program, used, self._memory, self._arena, self._crew.threads
            )
        return self._executables[key]

    def run(self, executable: AnyExecutable, inputs: Mapping[str, BytesLike]) -> Ticket:
        executable.check(inputs)
        copied = {name: bytes(data) for name, data in inputs.items()}
        return self._queue.put(lambda: executable.run(self._memory, self._crew, copied))

    def poll(self, ticket: Ticket) -> bool:
        return ticket.done

    async def read(self, ticket: Ticket) -> Mapping[str, memoryview]:
        found: Mapping[str, memoryview] = await ticket.wait()
        return found

    async def close(self) -> None:
        """Finish what is enqueued and end the threads."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._queue.close()
        self._crew.close()


async def open_cpu(
    device: str | None = None,
    *,
    threads: int = 0,
    memory: int = 0,
    exact: bool = False,
    cache_dir: Path | None = None,
) -> CpuBackend:
    """Open the backend. ``memory`` in bytes, 0 for what the machine has, at most 4 GiB; ``threads`` 0 for one a core.

    ``exact`` changes nothing here: the one arithmetic there is has a relative error of about 1e-5 (decision 005).
    Compiled kernels are kept in ``cache_dir``. Raises BackendUnavailable if a kernel computes wrong on this machine.
    """
    if threads < 0 or memory < 0:
        raise UsageError(f"the cpu backend was asked for {threads} threads and {memory} bytes; neither can be negative")
    return await asyncio.to_thread(_open, threads or default_threads(), memory, cache_dir)


def _open(threads: int, memory: int, cache_dir: Path | None) -> CpuBackend:
    engine = module.engine()
    kernels = module.load(engine, cache_dir)
    limits = kernels.imports[0].type.limits
    linear = LinearMemory(engine, limits.min, limits.max)
    crew = Crew(engine, kernels, linear, threads, memory or min(physical_memory() or ADDRESSABLE, ADDRESSABLE))
    return CpuBackend(linear, crew, device_name(threads))
