"""Weights from their files to the device: packed a few megabytes at a time, into large buffers that many share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol

import numpy as np
from numpy.typing import NDArray

from pie_edge.backend import Stop, WeightSource
from pie_edge.backends.shared.placement import aligned
from pie_edge.backends.shared.pools import Pools, buffer_sizes, expected_bytes, stands_alone
from pie_edge.backends.shared.region import B, Region
from pie_edge.backends.shared.weights import Matrix, Packing, Part, Vector, Weight, pack, packing, split_rows
from pie_edge.program.encodings import Dense, DType
from pie_edge.program.ops import Value

PART = 128 << 20
"""The most that lies together, where the device binds more."""
_CHUNK = 1 << 21
"""Weights packed at once."""


class Memory(Protocol[B]):
    """Where weights go: a session of a device."""

    def device_buffer(self, nbytes: int, what: str) -> B:
        """Raises OutOfMemory."""

    def free(self, buffer: B) -> None: ...

    def fill(self, region: Region[B], data: memoryview) -> None:
        """Bytes into memory that nothing has used before."""


class Loader(Generic[B]):
    def __init__(self, session: Memory[B], interleaved: int, max_binding: int) -> None:
        self._session = session
        self._interleaved = interleaved
        self._most = min(PART, max_binding // 256 * 256)
        self._pools = Pools(self._most)
        self._pool: B | None = None
        """The current one; what is free of it is at its end."""
        self._used: dict[B, int] = {}
        """Regions of each pool that are in use."""

    def expect(self, weights: Sequence[Value]) -> None:
        """These are to be loaded next, in this order: pools are made for them, and not for more."""
        self._pools = Pools(self._most, expected_bytes(weights, self._interleaved, self._most))
        self._pool = None

    def buffer_sizes(self, weights: Sequence[Value]) -> list[int]:
        """The buffers that loading them will make, once they are expected."""
        return list(buffer_sizes(weights, self._interleaved, self._most))

    def load(self, value: Value, source: WeightSource, stop: Stop | None = None) -> Weight:
        """Bring a weight to the device. Raises OutOfMemory. Runs in a worker thread, and ends between two megabytes when it is
        told to ``stop``: what it took is given back."""
        assert value.encoding is not None
        if len(value.shape) == 1:
            return self._load_vector(value, source)
        rows, columns = value.shape
        packed = packing(value.encoding, columns, self._interleaved)
        parts: list[Part] = []
        try:
            for first, count in split_rows(rows, packed.rows_within(self._most)):
                room = self._room(aligned(packed.code_bytes(count)) + packed.scale_bytes(count), value.name)
                parts.append(Part(first, count, room, aligned(packed.code_bytes(count))))
                self._fill_part(packed, source, parts[-1], stop or Stop())
        except BaseException:
            for part in parts:
                self.free_region(part.region)
            raise
        return Matrix((rows, columns), packed, tuple(parts))

    def free(self, weight: Weight) -> None:
        """Its memory comes back when nothing else of its pools is in use."""
        for region in [weight.region] if isinstance(weight, Vector) else [part.region for part in weight.parts]:
            self.free_region(region)

    def free_region(self, region: Region[B]) -> None:
        self._used[region.buffer] -= 1
        if not self._used[region.buffer]:
            del self._used[region.buffer]
            self._session.free(region.buffer)
            if self._pool is region.buffer:
                self._forget()

    def constant(self, data: bytes, what: str) -> Region[B]:
        region = self._room(len(data), what)
        self._write(region, np.frombuffer(data, np.uint8))
        return region

    def _load_vector(self, value: Value, source: WeightSource) -> Vector:
        values = source.planes(0, 1)["values"].reshape(-1)
        assert isinstance(value.encoding, Dense)
        if value.encoding.dtype is DType.BF16:
            values = (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
        wide = np.ascontiguousarray(values, np.float32)
        return Vector(self.constant(wide.tobytes(), value.name), wide)

    def _fill_part(self, packed: Packing, source: WeightSource, part: Part, stop: Stop) -> None:
        region, scales = part.region, part.scales
        step = max(_CHUNK // packed.columns // packed.interleaved, 1) * packed.interleaved
        for at, count in split_rows(part.rows, step):
            stop.look()
            codes, scale_words = pack(packed, source.planes(part.first + at, count))
            self._write(region.part(packed.code_bytes(at), len(codes)), codes)
            if len(scale_words):
                self._write(region.part(scales + packed.scale_bytes(at), len(scale_words)), scale_words)

    def _room(self, nbytes: int, what: str) -> Region[B]:
        """A region in the current pool, or in a new one. Whole vectors of 16 bytes."""
        size, whole = aligned(max(nbytes, 16)), -(-nbytes // 16) * 16
        made = self._pools.take(size)
        buffer = self._pool
        if made:
            try:
                buffer = self._session.device_buffer(made, f"weight {what}")
            except BaseException:
                self._forget()
                raise
        assert buffer is not None
        self._used[buffer] = self._used.get(buffer, 0) + 1
        if stands_alone(size):
            return Region(buffer, 0, whole)
        self._pool = buffer
        return Region(buffer, self._pools.end - size, whole)

    def _forget(self) -> None:
        self._pool = None
        self._pools.close()

    def _write(self, region: Region[B], data: NDArray[np.uint8]) -> None:
        self._session.fill(region, memoryview(data))
