"""An open device with everything that outlives a Program: memory, queue, pipelines, command buffers, staging."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from threading import RLock

from pie_edge.backend import Stop
from pie_edge.backends.shared.download import Download
from pie_edge.backends.shared.session import BaseSession, Ring
from pie_edge.backends.vulkan.api import lib
from pie_edge.backends.vulkan.device import Gpu
from pie_edge.backends.vulkan.launch import Launch
from pie_edge.backends.vulkan.memory import Buffer, Kind, Memory, Region
from pie_edge.backends.vulkan.pipelines import Pipelines
from pie_edge.backends.vulkan.record import BoundLaunches, CommandPool, Commands
from pie_edge.backends.vulkan.timeline import Timeline

STAGING = 32 << 20
"""Bytes of the ring that uploads go through, at most."""


class Session(BaseSession[Buffer]):
    """Owns a Gpu."""

    def __init__(self, gpu: Gpu, memory: int, cache_dir: Path | None, stop: Stop | None = None) -> None:
        self.timeline = Timeline(gpu)
        super().__init__(Memory(gpu, memory), self.timeline, RLock(), stop)
        self.gpu = gpu
        self.pipelines = Pipelines(gpu, cache_dir, self.stop)
        self.commands = CommandPool(gpu)
        self._ring = Ring(_ring_bytes(memory), self.timeline.drain)
        self._staging: Buffer | None = None
        self._bound: set[BoundLaunches] = set()

    def buffer(self, nbytes: int, kind: Kind, what: str) -> Buffer:
        """Raises OutOfMemory."""
        return self._made(lambda: self.memory.buffer(nbytes, kind, what))

    def device_buffer(self, nbytes: int, what: str) -> Buffer:
        """Device memory; where the host shares it, mapped."""
        return self.buffer(nbytes, Kind.SHARED if self.gpu.facts.unified else Kind.DEVICE, what)

    def fill(self, region: Region, data: memoryview) -> None:
        """Bytes into memory that nothing has used before: straight, where the host shares it."""
        if region.buffer.mapped is not None:
            region.buffer.mapped[region.offset : region.offset + len(data)] = data
        else:
            self.upload(region, data)

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

    def settled(self, memory: int = 0) -> int:
        """With the ring of uploads there: the session's, or what it would be with so much memory."""
        there = 0 if self._staging is None else self.memory.rounded(self._ring.nbytes)
        ring = _ring_bytes(memory) if memory else self._ring.nbytes
        return super().settled(memory) - there + int(self.memory.rounded(ring))

    def clear(self, region: Region) -> None:
        """Zeros, ordered with runs."""
        with self.lock:
            commands = self.commands.begin()
            commands.clear(region)
            self.send(commands)

    def upload(self, region: Region, data: memoryview) -> None:
        """Bytes into device memory, ordered with runs; they are copied before it returns. ``data`` is flat bytes."""
        for first, part in self._ring.pieces(data):
            with self.lock:
                source = self._stage(part)
                commands = self.commands.begin()
                commands.copy(source, region.part(first, len(part)))
                self.send(commands)

    def download(self, regions: Sequence[Region]) -> Download:
        """Enqueue copying these regions to the host."""
        sizes = [region.nbytes for region in regions]
        target = self.buffer(sum(sizes), Kind.READBACK, "a download")
        assert target.mapped is not None
        with self.lock:
            commands, end = self.commands.begin(), 0
            for region in regions:
                if region.nbytes:
                    commands.copy(region, target.region(end, region.nbytes))
                end += region.nbytes
            commands.show_host()
            value = self.send(commands)
        return Download(value, sizes, target.mapped, partial(self.free, target))

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
        if self._staging is None:
            self._staging = self.buffer(self._ring.nbytes, Kind.UPLOAD, "uploads")
        region = self._staging.region(self._ring.take(len(data)), len(data))
        assert self._staging.mapped is not None
        self._staging.mapped[region.offset : region.end] = data
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
