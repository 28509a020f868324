"""An open device with everything that outlives a Program: memory, queue, pipelines, command buffers, staging."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import RLock

from pie_edge.backend import Stop
from pie_edge.backends.vulkan.api import lib
from pie_edge.backends.vulkan.device import Gpu
from pie_edge.backends.vulkan.launch import Launch
from pie_edge.backends.vulkan.memory import Buffer, Kind, Memory, Region
from pie_edge.backends.vulkan.pipelines import Pipelines
from pie_edge.backends.vulkan.record import BoundLaunches, CommandPool, Commands
from pie_edge.backends.vulkan.timeline import Timeline
from pie_edge.errors import OutOfMemory

STAGING = 32 << 20
"""Bytes of the ring that uploads go through, at most."""


class Session:
    """Owns a Gpu. What is given back while it may still be in use is destroyed once the device is past it."""

    def __init__(self, gpu: Gpu, memory: int, cache_dir: Path | None, stop: Stop | None = None) -> None:
        self.stop = stop or Stop()
        """Asked when the opening of this device was given up."""
        self.gpu = gpu
        self.memory = Memory(gpu, memory)
        self.timeline = Timeline(gpu)
        self.pipelines = Pipelines(gpu, cache_dir, self.stop)
        self.commands = CommandPool(gpu)
        self._ring_bytes = _ring_bytes(memory)
        self._ring: Buffer | None = None
        self._ring_head = 0
        self._retired: deque[tuple[int, Callable[[], None]]] = deque()
        """What to do once the timeline reaches a number."""
        self._buffers: set[Buffer] = set()
        self._bound: set[BoundLaunches] = set()
        self._closed = False
        self.lock = RLock()
        """Held while commands are recorded and submitted and while memory is given out: the loop's thread runs steps while a
        worker's loads and compiles."""

    def buffer(self, nbytes: int, kind: Kind, what: str) -> Buffer:
        """Raises OutOfMemory, but not before what was given back has been waited for."""
        with self.lock:
            self.collect()
            try:
                made = self.memory.buffer(nbytes, kind, what)
            except OutOfMemory:
                if not self._retired:
                    raise
                self.timeline.drain()
                self.collect()
                made = self.memory.buffer(nbytes, kind, what)
            self._buffers.add(made)
            return made

    def device_buffer(self, nbytes: int, what: str) -> Buffer:
        """Device memory; where the host shares it, mapped."""
        return self.buffer(nbytes, Kind.SHARED if self.gpu.facts.unified else Kind.DEVICE, what)

    def fill(self, region: Region, data: memoryview) -> None:
        """Bytes into memory that nothing has used before: straight, where the host shares it."""
        if region.buffer.mapped is not None:
            region.buffer.mapped[region.offset : region.offset + len(data)] = data
        else:
            self.upload(region, data)

    def free(self, buffer: Buffer) -> None:
        """After the runs before it."""

        def destroy() -> None:
            self._buffers.discard(buffer)
            self.memory.free(buffer)

        self.retire(destroy)

    def bind(self, launches: Sequence[Launch]) -> BoundLaunches:
        bound = BoundLaunches(self.gpu, self.pipelines, launches)
        self._bound.add(bound)
        return bound

    def unbind(self, bound: BoundLaunches) -> None:
        """After the runs before it."""

        def destroy() -> None:
            self._bound.discard(bound)
            bound.close()

        self.retire(destroy)

    def retire(self, destroy: Callable[[], None]) -> None:
        """Do this once everything that was submitted so far is done; nothing if the session is closed by then."""
        if not self._closed:
            self._retired.append((self.timeline.submitted, destroy))

    def settled(self, memory: int = 0) -> int:
        """Bytes in use once what was given back is destroyed and the ring of uploads is there: the session's, or what it would be
        with so much memory. Waits for the device."""
        with self.lock:
            self.timeline.drain()
            self.collect()
            there = 0 if self._ring is None else self.memory.rounded(self._ring_bytes)
            ring = _ring_bytes(memory) if memory else self._ring_bytes
            return self.memory.used - there + self.memory.rounded(ring)

    def collect(self) -> None:
        """Destroy what was retired and is no longer in use."""
        with self.lock:
            reached = self.timeline.reached() if self._retired else 0
            while self._retired and self._retired[0][0] <= reached:
                self._retired.popleft()[1]()

    def clear(self, region: Region) -> None:
        """Zeros, ordered with runs."""
        with self.lock:
            commands = self.commands.begin()
            commands.clear(region)
            self.send(commands)

    def upload(self, region: Region, data: memoryview) -> None:
        """Bytes into device memory, ordered with runs; they are copied before it returns. ``data`` is flat bytes."""
        for first in range(0, len(data), self._ring_bytes // 2):
            part = data[first : first + self._ring_bytes // 2]
            with self.lock:
                source = self._stage(part)
                commands = self.commands.begin()
                commands.copy(source, region.part(first, len(part)))
                self.send(commands)

    def run(self, launches: Sequence[Launch]) -> None:
        """Run launches once and wait: for tests, tuning and the self-test, never for a step."""
        bound = self.bind(launches)
        with self.lock:
            commands = self.commands.begin()
            for item in bound.items:
                commands.dispatch(item)
            self.send(commands)
        self.unbind(bound)
        self.timeline.drain()

    def download(self, regions: Sequence[Region]) -> tuple[int, Buffer]:
        """Enqueue copying these regions, one after the other, into a mapped buffer: there when the timeline reaches the number
        that comes with it. The caller gives the buffer back."""
        target = self.buffer(sum(region.nbytes for region in regions), Kind.READBACK, "a download")
        with self.lock:
            commands, end = self.commands.begin(), 0
            for region in regions:
                if region.nbytes:
                    commands.copy(region, target.region(end, region.nbytes))
                end += region.nbytes
            commands.show_host()
            return self.send(commands), target

    def read(self, region: Region) -> bytes:
        """A region's bytes, after everything that was enqueued. Waits."""
        _, target = self.download([region])
        self.timeline.drain()
        assert target.mapped is not None
        found = bytes(target.mapped[: region.nbytes])
        self.free(target)
        return found

    def close(self) -> None:
        """Wait for what runs, and destroy everything."""
        self._closed = True
        # Whatever it says: a lost device is done with everything.
        lib.vkDeviceWaitIdle(self.gpu.device)
        self._retired.clear()
        self.commands.close()
        for bound in self._bound:
            bound.close()
        self.pipelines.close()
        for buffer in self._buffers:
            self.memory.free(buffer)
        self.timeline.close()
        self.gpu.close()

    def _stage(self, data: memoryview) -> Region:
        """Room in the ring with the data in it; waits for uploads that still read there."""
        if self._ring is None:
            self._ring = self.buffer(self._ring_bytes, Kind.UPLOAD, "uploads")
        aligned = -(-len(data) // 256) * 256
        if self._ring_head + aligned > self._ring_bytes:
            self.timeline.drain()
            self._ring_head = 0
        region = self._ring.region(self._ring_head, len(data))
        self._ring_head += aligned
        assert self._ring.mapped is not None
        self._ring.mapped[region.offset : region.end] = data
        return region

    def send(self, commands: Commands) -> int:
        """Enqueue a command buffer that runs once; its number."""
        handle = commands.end()
        value = self.timeline.submit(handle)
        self.retire(lambda: self.commands.free(handle))
        self.collect()
        return value


def _ring_bytes(memory: int) -> int:
    """A device with little memory gets a smaller ring."""
    return min(STAGING, max(memory // 16, 1 << 20)) // 512 * 512
