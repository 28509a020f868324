"""An open device with everything that outlives a Program: memory, queue, pipelines, what is read back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pie_edge.backend import Stop
from pie_edge.backends.shared.download import pieces
from pie_edge.backends.shared.session import BaseSession
from pie_edge.backends.wgpu.api import Handle, ffi, lib, libf, translated, wgpu
from pie_edge.backends.wgpu.device import Facts
from pie_edge.backends.wgpu.memory import Buffer, Memory, Region
from pie_edge.backends.wgpu.pipelines import Pipelines
from pie_edge.backends.wgpu.timeline import Timeline
from pie_edge.errors import BackendError, DeviceLost

STAGED = 64 << 20
"""Bytes written that may wait for the queue: wgpu stages each write in memory of its own until it is submitted."""


class Session(BaseSession[Buffer]):
    def __init__(self, device: Handle, facts: Facts, memory: int, stop: Stop | None = None) -> None:
        self.timeline = Timeline(device)
        super().__init__(Memory(device, facts, memory), self.timeline, self.timeline.lock, stop)
        self.device = device
        self.facts = facts
        self.pipelines = Pipelines(device, self.stop)
        self._queue = device.queue._internal
        self._staged = 0
        self._probe = device.create_buffer(size=16, usage=wgpu.BufferUsage.COPY_DST)

    def buffer(self, nbytes: int, label: str, *, readback: bool = False) -> Buffer:
        """Raises OutOfMemory."""
        return self._made(lambda: self.memory.buffer(nbytes, label, readback=readback))

    def device_buffer(self, nbytes: int, label: str) -> Buffer:
        return self.buffer(nbytes, label)

    def fill(self, region: Region, data: memoryview) -> None:
        self.upload(region, data)

    def upload(self, region: Region, data: memoryview | bytes) -> None:
        """Bytes into device memory, ordered with runs; they are copied before it returns."""
        given = memoryview(data).cast("B")
        with self.timeline.lock:
            # A write comes before everything that is submitted after it: what is held back must be gone first.
            self.timeline.flush()
            self._write(*self._whole_words(region, given))
            self._staged += len(given)
            if self._staged > STAGED:
                self._staged = 0
                self.submit_nothing()

    def _whole_words(self, region: Region, data: memoryview) -> tuple[Region, memoryview]:
        """The API writes whole words: of the first and the last one the other bytes stay."""
        begin, end = region.offset // 4 * 4, -(-(region.offset + len(data)) // 4) * 4
        target = region.buffer.region(begin, end - begin)
        if end - begin == len(data):
            return target, data
        words = bytearray(end - begin)
        words[:4], words[-4:] = self.read(target.part(0, 4)), self.read(target.part(end - begin - 4, 4))
        words[region.offset - begin : region.offset - begin + len(data)] = data
        return target, memoryview(words)

    def put(self, region: Region, data: memoryview, after: int) -> None:
        """A step's inputs, whole words. What still waits to be sent and reads those before, number ``after``, is sent first."""
        if after > self.timeline.sent:
            self.timeline.flush()
        self._write(region, data)

    def _write(self, region: Region, data: memoryview) -> None:
        if len(data):
            with translated(f"write {len(data)} bytes of {region.buffer.label}"):
                libf.wgpuQueueWriteBuffer(
                    self._queue, region.buffer.handle._internal, region.offset, ffi.from_buffer(data), len(data)
                )

    def submit_nothing(self) -> int:
        """A number that is reached when the writes so far are done."""
        encoder = self._encoder()
        return self.timeline.submit(_finished(encoder))

    def download(self, regions: Sequence[Region]) -> Readback:
        """Enqueue copying these regions to the host, one after the other, each from a whole word on."""
        return Readback(self, regions)

    def read(self, region: Region) -> bytes:
        """A region's bytes, after everything that was enqueued. Waits."""
        found = self.download([region])
        while not self.timeline.is_reached(found.value):
            self.timeline.drain()
        return bytes(found.outputs()["0"])

    def copy_commands(self, copies: Sequence[tuple[Region, Region]]) -> Any:
        encoder = self._encoder()
        for source, target in copies:
            lib.wgpuCommandEncoderCopyBufferToBuffer(
                encoder,
                source.buffer.handle._internal,
                source.offset,
                target.buffer.handle._internal,
                target.offset,
                -(-source.nbytes // 4) * 4,
            )
        return _finished(encoder)

    def _encoder(self) -> Any:
        with translated("record"):
            return libf.wgpuDeviceCreateCommandEncoder(self.device._internal, ffi.NULL)

    def is_alive(self) -> bool:
        """Whether the device is still there: a write of nothing is refused where it isn't."""
        if not self.timeline.lost:
            try:
                with translated("go on"):
                    libf.wgpuQueueWriteBuffer(self._queue, self._probe._internal, 0, ffi.NULL, 0)
            except BackendError as error:
                self.timeline.lose(str(error))
        return not self.timeline.lost

    def close(self) -> None:
        """Whatever runs ends; all memory goes."""
        self._closed = True
        self._retired.clear()
        self.timeline.lose("the device was closed")
        self.device.destroy()


def _finished(encoder: Any) -> Any:
    with translated("record"):
        commands = libf.wgpuCommandEncoderFinish(encoder, ffi.NULL)
    lib.wgpuCommandEncoderRelease(encoder)
    return commands


class Readback:
    """Pieces of buffers on their way to the host: there when the timeline reaches ``value``."""

    def __init__(self, session: Session, regions: Sequence[Region]) -> None:
        self._session = session
        self._sizes = [region.nbytes for region in regions]
        places = [-(-nbytes // 4) * 4 for nbytes in self._sizes]
        self._buffer = session.buffer(sum(places), "a download", readback=True)
        copies, end = [], 0
        for region, room in zip(regions, places, strict=True):
            if room:
                copies.append((region, self._buffer.region(end, room)))
            end += room
        with session.timeline.lock:
            self.value = session.timeline.submit(session.copy_commands(copies))
            self._mapping = Mapping(session, self._buffer)

    def outputs(self) -> dict[str, memoryview]:
        """The pieces by their number, copied, once they are there; to be asked once."""
        found = pieces(memoryview(self._mapping.taken()), self._sizes, 4)
        self._session.free(self._buffer)
        return found


class Mapping:
    """A buffer that was asked to be mapped for reading, after everything that was submitted."""

    def __init__(self, session: Session, buffer: Buffer) -> None:
        self._session = session
        self._buffer = buffer
        self._status: int | None = None

        @ffi.callback("void(WGPUMapAsyncStatus, WGPUStringView, void *, void *)")  # type: ignore[untyped-decorator]
        def mapped(status: int, message: Any, unused: Any, unused2: Any) -> None:
            self._status = status

        self._callback = mapped
        info = ffi.new("WGPUBufferMapCallbackInfo*")
        info.mode, info.callback = lib.WGPUCallbackMode_AllowProcessEvents, mapped
        with translated("read outputs"):
            libf.wgpuBufferMapAsync(buffer.handle._internal, lib.WGPUMapMode_Read, 0, buffer.nbytes, info[0])

    def drop(self) -> None:
        """Nobody will take it: the buffer can be used again. One that is mapped, or to be, would end the process."""
        if self._status in (None, lib.WGPUMapAsyncStatus_Success) and self._session.is_alive():
            lib.wgpuBufferUnmap(self._buffer.handle._internal)

    def taken(self) -> bytes:
        """What is in it, copied; the buffer can be used again. Raises DeviceLost."""
        if self._status is None:
            lib.wgpuDevicePoll(self._session.device._internal, False, ffi.NULL)
        handle, pointer = self._buffer.handle._internal, ffi.NULL
        # The buffer of a device that has gone since would end the process.
        if self._status == lib.WGPUMapAsyncStatus_Success and self._session.is_alive():
            pointer = lib.wgpuBufferGetConstMappedRange(handle, 0, self._buffer.nbytes)
        if pointer == ffi.NULL:
            told = self._session.timeline.lost or "the device was lost while its outputs were read"
            raise DeviceLost(f"{told}; run the request again")
        data = bytes(ffi.buffer(pointer, self._buffer.nbytes))
        lib.wgpuBufferUnmap(handle)
        return data
