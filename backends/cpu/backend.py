"""The cpu backend: the Backend protocol over kernels in linear memory, a crew of threads and a work queue."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar
from weakref import WeakValueDictionary

from pie_edge.backend import BytesLike, Limits, WeightSource
from pie_edge.backends.cpu import module, selftest
from pie_edge.backends.cpu.allocator import rounded
from pie_edge.backends.cpu.crew import Crew
from pie_edge.backends.cpu.device import default_threads, device_name
from pie_edge.backends.cpu.executable import AnyExecutable, Arena, ModelExecutable, compile_program, sizes
from pie_edge.backends.cpu.lowering import KINDS
from pie_edge.backends.cpu.memory import ADDRESSABLE, LinearMemory, Region
from pie_edge.backends.cpu.weights import Loader, Weight, allocate, nbytes_of, supports, supports_dense
from pie_edge.backends.shared.host import physical_memory
from pie_edge.backends.shared.work_queue import Ticket, WorkQueue
from pie_edge.errors import DeviceLost, OutOfMemory, PieError, UsageError
from pie_edge.program.encodings import DType, Encoding
from pie_edge.program.ops import Program, Role, Value

PROGRAMS = 8
"""Compiled Programs, as large as the largest, that a footprint has room for: a session has a few more, and smaller ones."""

Got = TypeVar("Got")
Encodings = Callable[[Encoding], bool]


class CpuBackend:
    """Made by ``open_cpu``. Everything that touches the device runs on the queue's thread, in order."""

    def __init__(
        self, memory: LinearMemory, crew: Crew, arena: Arena, loader: Loader, device: str, encodings: Encodings
    ) -> None:
        self._memory = memory
        self._crew = crew
        self._arena = arena
        self._loader = loader
        self._queue = WorkQueue("pie-edge-cpu-0", "cpu")
        self._executables: WeakValueDictionary[tuple[str, tuple[int, ...]], AnyExecutable] = WeakValueDictionary()
        self._limits = Limits(
            backend="cpu",
            device=device,
            memory=memory.available,
            max_binding=memory.limit,
            kinds=KINDS,
            supports=encodings,
            kv_dtype=DType.F32,
            batch_invariant=True,
        )

    @property
    def limits(self) -> Limits:
        return self._limits

    def footprint(
        self, states: Sequence[int], weights: Sequence[Value], largest: Program | None, memory: int = 0
    ) -> int:
        parts = [*states, *map(nbytes_of, weights)]
        if largest is not None:
            found = sizes(largest, self._crew.threads)
            parts += [self._arena.growth(found.arena), *[found.own] * PROGRAMS]
        return self._limits.memory - self._memory.available + sum(rounded(part) for part in parts if part)

    async def expect(self, weights: Sequence[Value], largest: Program) -> None:
        self._arena.reserve(sizes(largest, self._crew.threads).arena)

    async def allocate(self, nbytes: int, role: Role) -> Region:
        return await self._patiently(lambda: self._memory.allocate(nbytes, f"a {role}"))

    async def _patiently(self, allocate: Callable[[], Got]) -> Got:
        """What is freed comes back when the runs before it are done: wait for them before giving up."""
        try:
            return allocate()
        except OutOfMemory:
            await self._queue.put(lambda: None).wait()
            return allocate()

    def free(self, buffer: Region | Weight) -> None:
        """After the runs before it."""
        region = _region(buffer)
        self._queue.put(lambda: self._memory.free(region))

    def _release(self, region: Region) -> None:
        """An executable that nobody holds any more gives its memory back."""
        with suppress(DeviceLost):  # closed: all memory goes
            self._queue.put(lambda: self._memory.free(region))

    def write(self, buffer: Region, data: BytesLike, offset: int = 0) -> None:
        copied = bytes(data)
        if offset < 0 or offset + len(copied) > buffer.nbytes:
            raise ValueError(f"{len(copied)} bytes at {offset} don't fit a buffer of {buffer.nbytes}")

        def copy() -> None:
            self._memory.view(buffer.offset + offset, len(copied))[:] = copied

        self._queue.put(copy)

    def download(self, spans: Sequence[tuple[Region, int, int]]) -> Ticket:
        wanted = list(spans)
        for buffer, offset, nbytes in wanted:
            if offset < 0 or nbytes < 0 or offset + nbytes > buffer.nbytes:
                raise ValueError(f"{nbytes} bytes at {offset} aren't all in a buffer of {buffer.nbytes}")

        def copy() -> dict[str, memoryview]:
            return {
                str(index): memoryview(bytes(self._memory.view(buffer.offset + offset, nbytes)))
                for index, (buffer, offset, nbytes) in enumerate(wanted)
            }

        return self._queue.put(copy)

    async def load(self, value: Value, source: WeightSource) -> Weight:
        weight = await self._patiently(lambda: allocate(value, self._memory))
        try:
            await self._queue.put(lambda: self._loader.load(weight, source)).wait()
        except BaseException:
            self.free(weight)
            raise
        return weight

    async def compile(self, program: Program, buffers: Mapping[str, Region | Weight]) -> AnyExecutable:
        used = {name: buffers[name] for name in program.values if name in buffers}
        key = (program.digest, tuple(_region(buffer).offset for buffer in used.values()))
        known = self._executables.get(key)
        if known is None:
            known = await asyncio.to_thread(
                compile_program, program, used, self._memory, self._arena, self._crew.threads
            )
            self._executables[key] = known
            if isinstance(known, ModelExecutable):
                weakref.finalize(known, self._release, known.region)
        return known

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


def _region(buffer: Region | Weight) -> Region:
    return buffer.region if isinstance(buffer, Weight) else buffer


async def open_cpu(
    device: str | None = None,
    *,
    threads: int = 0,
    memory: int = 0,
    exact: bool = False,
    cache_dir: Path | None = None,
) -> CpuBackend:
    """Open the backend. ``memory`` in bytes, 0 for what the machine has, at most 4 GiB; ``threads`` 0 for one a core.

    ``exact`` takes dense weights only, so that others are widened to float32: nothing is rounded but sums, for four to
    seven times the memory and time (decision 005). Compiled kernels are kept in ``cache_dir``. Raises BackendUnavailable
    if wasmtime can't compile them or one computes wrong here.
    """
    if threads < 0 or memory < 0:
        raise UsageError(f"the cpu backend was asked for {threads} threads and {memory} bytes; neither can be negative")
    return await asyncio.to_thread(_open, threads or default_threads(), memory, exact, cache_dir)


def _open(threads: int, memory: int, exact: bool, cache_dir: Path | None) -> CpuBackend:
    engine = module.engine()
    kernels = module.load(engine, cache_dir)
    linear = LinearMemory(engine, *module.memory_pages(kernels))
    crew = Crew(engine, kernels, linear, threads, memory or min(physical_memory() or ADDRESSABLE, ADDRESSABLE))
    arena, loader = Arena(linear), Loader(linear, crew.run)
    try:
        selftest.check(linear, crew, arena, loader)
    except PieError:
        crew.close()
        raise
    return CpuBackend(linear, crew, arena, loader, device_name(threads), supports_dense if exact else supports)
