"""An open device with everything that outlives a Program: memory, the stream, kernels, what is on its way to the host."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ctypes import c_void_p
from functools import partial

from pie_edge.backend import Stop
from pie_edge.backends.cuda.device import Gpu
from pie_edge.backends.cuda.launch import Kernel, Launch
from pie_edge.backends.cuda.memory import Buffer, Memory, Pinned, Region
from pie_edge.backends.cuda.rooms import Rooms
from pie_edge.backends.cuda.tensors import described
from pie_edge.backends.cuda.timeline import Timeline
from pie_edge.backends.shared.download import Download
from pie_edge.backends.shared.session import BaseSession, Ring

STAGING = 8 << 20
"""Bytes of the pinned ring that writes go through."""

_USUAL_SHARED, _MOST_SHARED = 48 << 10, 8
"""Bytes of shared memory that any launch may ask for, and the driver's name for how many a kernel may."""

Module = tuple[str, str, tuple[str, ...]]
"""A file's name, text in its place or "", and macros."""
Compile = Callable[[str, str, tuple[str, ...]], bytes]
"""Of a module, gives what the driver loads."""


class Session(BaseSession[Buffer]):
    memory: Memory

    def __init__(self, gpu: Gpu, memory: int, compile_kernels: Compile, stop: Stop | None = None) -> None:
        self.timeline = Timeline(gpu)
        super().__init__(Memory(gpu, memory), self.timeline, self.timeline.lock, stop)
        self.gpu = gpu
        self._compile = compile_kernels
        self._modules: dict[Module, c_void_p] = {}
        self._functions: dict[Kernel, c_void_p] = {}
        self._shared: dict[Kernel, int] = {}
        """Bytes that a launch may ask for, of those that may have more than usual."""
        self._ring = Ring(STAGING, self.timeline.drain)
        self._staging: Pinned | None = None
        self._pinned: set[Pinned] = set()
        self._rooms = Rooms(self.pinned, self.unpin, self.timeline.is_reached)
        self._graphs: dict[int | None, c_void_p] = {}

    def device_buffer(self, nbytes: int, what: str) -> Buffer:
        """Raises OutOfMemory."""
        return self._made(lambda: self.memory.buffer(nbytes, what))

    def pinned(self, nbytes: int, what: str) -> Pinned:
        made = self.memory.pinned(nbytes, what)
        self._pinned.add(made)
        return made

    def unpin(self, pinned: Pinned) -> None:
        """After the runs before it."""

        def destroy() -> None:
            self._pinned.discard(pinned)
            self.memory.unpin(pinned)

        self.retire(destroy)

    def keep(self, graph: c_void_p) -> Callable[[], None]:
        """One that is ready to be launched: until what this gives is called, after the runs before that, or the session ends."""
        self._graphs[graph.value] = graph

        def destroy() -> None:
            del self._graphs[graph.value]
            self.gpu.call("give back a graph", "cuGraphExecDestroy", graph)

        return partial(self.retire, destroy)

    def fill(self, region: Region, data: memoryview) -> None:
        """Bytes into memory that nothing has used before, ordered with runs as well: a copy beside the stream may still be on its
        way when it returns."""
        self.upload(region, data)

    def clear(self, region: Region) -> None:
        """Zeros, ordered with runs."""
        with self.lock:
            self.gpu.call("clear memory", "cuMemsetD8Async", _address(region), 0, region.nbytes, self.timeline.stream)
            self.timeline.mark()

    def upload(self, region: Region, data: memoryview) -> None:
        """Bytes into device memory, ordered with runs; they are copied before it returns."""
        for first, part in self._ring.pieces(data):
            with self.lock:
                source = self._stage(part)
                self.timeline.checked(0, "write")
                target = region.buffer.address + region.offset + first
                self.gpu.call("write", "cuMemcpyHtoDAsync_v2", target, source, len(part), self.timeline.stream)
                self.timeline.mark()

    def download(self, regions: Sequence[Region]) -> Download:
        """Enqueue copying these regions to the host."""
        sizes = [region.nbytes for region in regions]
        at, stream = 0, self.timeline.stream
        with self.lock:
            self.timeline.checked(0, "read")
            room = self._rooms.take(sum(sizes))
            for region in regions:
                if region.nbytes:
                    place = c_void_p(room.address + at)
                    self.gpu.call("read", "cuMemcpyDtoHAsync_v2", place, _address(region), region.nbytes, stream)
                at += region.nbytes
            value = self.timeline.mark()
        return Download(value, sizes, room.view, partial(self._rooms.give_back, room, value))

    def _stage(self, data: memoryview) -> c_void_p:
        """Room in the ring with the data in it; waits for what still reads there."""
        if self._staging is None:
            self._staging = self.pinned(STAGING, "uploads")
        at = self._ring.take(len(data))
        self._staging.view[at : at + len(data)] = data
        return c_void_p(self._staging.address + at)

    def prepare(self, kernels: Iterable[Kernel]) -> None:
        """Compile and load what isn't there yet, as many at a time as there are processors."""
        wanted = {_module(kernel): None for kernel in kernels if _module(kernel) not in self._modules}
        if len(wanted) > 1:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                images = list(pool.map(self._image, wanted))
        else:
            images = [self._image(key) for key in wanted]
        with self.lock:
            for key, image in zip(wanted, images, strict=True):
                if key not in self._modules:  # another thread may have had the same idea
                    self._modules[key] = self.gpu.made(f"load {key[0]}", "cuModuleLoadData", ctypes.c_char_p(image))

    def _image(self, module: Module) -> bytes:
        """Unless whoever opens the device has given it up."""
        self.stop.look()
        return self._compile(*module)

    def function(self, kernel: Kernel) -> c_void_p:
        """Compiled and loaded when it is first asked for. Raises BackendError with what the compiler said."""
        if kernel not in self._functions:
            self.prepare([kernel])
            module = self._modules[_module(kernel)]
            self._functions[kernel] = self.gpu.made(
                f"find {kernel}", "cuModuleGetFunction", module, kernel.name.encode()
            )
        return self._functions[kernel]

    def function_of(self, launch: Launch) -> c_void_p:
        """Which may have as much shared memory as the launch asks for."""
        kernel, shared = launch.kernel, launch.shared
        function = self.function(kernel)
        if shared > self._shared.get(kernel, _USUAL_SHARED):
            self.gpu.call(f"let {kernel} have {shared} bytes", "cuFuncSetAttribute", function, _MOST_SHARED, shared)
            self._shared[kernel] = shared
        return function

    def enqueue(self, launch: Launch, grid: tuple[int, int, int], stream: c_void_p) -> None:
        """Launch, or record where the stream is being captured."""
        given = [one if isinstance(one, bytes) else described(self.gpu, one) for one in launch.arguments]
        rooms = [ctypes.create_string_buffer(data, len(data)) for data in given]
        places = (c_void_p * max(len(rooms), 1))(*[ctypes.addressof(room) for room in rooms])
        self.gpu.call(
            f"launch {launch.kernel}",
            "cuLaunchKernel",
            self.function_of(launch),
            *grid,
            *(launch.block, 1, 1, launch.shared),
            stream,
            places,
            None,
        )

    def close(self) -> None:
        """Whatever runs has ended; all memory goes. Closing again does nothing."""
        if self._closed:
            return
        self._closed = True
        self._retired.clear()
        self.gpu.enter()
        for graph in self._graphs.values():
            self.gpu.raw("cuGraphExecDestroy")(graph)
        for module in self._modules.values():
            self.gpu.raw("cuModuleUnload")(module)
        for buffer in self._buffers:
            self.memory.free(buffer)
        for pinned in self._pinned:
            self.memory.unpin(pinned)
        self.timeline.close()
        self.gpu.close()


def _address(region: Region) -> int:
    return region.buffer.address + region.offset


def _module(kernel: Kernel) -> Module:
    return kernel.file, kernel.text, kernel.defines
