"""Weights in linear memory: which encodings the kernels read, and bringing a file's rows there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pie_edge.backend import WeightSource
from pie_edge.backends.cpu.instructions import Instruction, encode
from pie_edge.backends.cpu.memory import LinearMemory, Region
from pie_edge.errors import BadCheckpoint, Unsupported
from pie_edge.program.encodings import Affine, Dense, DType, Encoding
from pie_edge.program.ops import Value

STRIP = 8
DENSE_F32 = 16
_DENSE = {DType.F32: DENSE_F32, DType.F16: 17, DType.BF16: 18}
_PLANES, _DENSE_SOURCE = 0, 1
_STAGING_BYTES = 4 << 20


def supports(encoding: Encoding) -> bool:
    """Dense f32, f16, bf16; affine with 4 or 8 bits, groups of 16 or of whole 32s, and a scale of one level."""
    if isinstance(encoding, Dense):
        return encoding.dtype in _DENSE
    return (
        isinstance(encoding, Affine)
        and encoding.bits in (4, 8)
        and (encoding.group == 16 or encoding.group % 32 == 0)
        and encoding.scale in (DType.F16, DType.F32)
        and (encoding.zero is None or 0 <= encoding.zero < 256)
    )


def supports_dense(encoding: Encoding) -> bool:
    """What is taken where nothing may be rounded."""
    return isinstance(encoding, Dense) and supports(encoding)


@dataclass(frozen=True, slots=True)
class Format:
    """``kernels/weights.h``: its number there, and its constant zero point."""

    number: int
    zero: int = 0

    @classmethod
    def of(cls, value: Value) -> Format:
        """Raises Unsupported."""
        encoding = value.encoding
        if encoding is None or not supports(encoding):
            raise Unsupported(f"{value}: the cpu backend reads dense f32, f16, bf16 and affine weights of 4 or 8 bits")
        if isinstance(encoding, Dense):
            return cls(_DENSE[encoding.dtype])
        assert isinstance(encoding, Affine)
        bits, group = 8 * (encoding.bits == 8), 4 * (encoding.group != 16)
        number = bits + group + 2 * (encoding.scale == DType.F32) + (encoding.zero is None)
        return cls(number, encoding.zero or 0)

    @property
    def affine(self) -> bool:
        return self.number < DENSE_F32

    @property
    def group(self) -> int:
        return 32 if self.number & 4 else 16

    @property
    def scale_bytes(self) -> int:
        return 4 if self.number & 2 else 2

    def strip_bytes(self, columns: int) -> int:
        """Of eight rows."""
        if not self.affine:
            return columns * STRIP * (4 if self.number == DENSE_F32 else 2)
        block = STRIP * self.scale_bytes * (1 + (self.number & 1)) + self.group * (8 if self.number & 8 else 4)
        return columns // self.group * block


_RAW = {
    "Q4_0": (2, Format(4, zero=8)),
    "Q4_1": (3, Format(5)),
    "Q5_0": (4, Format(12, zero=16)),
    "Q5_1": (5, Format(13)),
    "Q8_0": (6, Format(12, zero=128)),
    "Q4_K": (7, Format(7)),
    "Q5_K": (8, Format(15)),
    "Q6_K": (9, Format(10, zero=32)),
}
"""File encodings whose blocks the kernel takes apart itself, and the format that they come to."""


@dataclass(eq=False, frozen=True, slots=True)
class Weight:
    """A loaded weight. A vector (norm, bias, factors) is plain float32 and has no format."""

    value: Value
    region: Region
    format: Format | None

    @property
    def nbytes(self) -> int:
        return self.region.nbytes


def allocate(value: Value, memory: LinearMemory) -> Weight:
    """Room for it. Raises OutOfMemory, and what ``nbytes_of`` raises."""
    form = None if len(value.shape) == 1 else Format.of(value)
    return Weight(value, memory.allocate(nbytes_of(value), str(value)), form)


def nbytes_of(value: Value) -> int:
    """What a weight takes. Raises Unsupported, or BadCheckpoint for columns that groups don't fill."""
    if len(value.shape) == 1:
        return 4 * value.shape[0]
    rows, columns = value.shape
    group = getattr(value.encoding, "group", 1)
    if columns % group:
        raise BadCheckpoint(f"{value}: rows of {columns} weights can't be cut into groups of {group}")
    return -(-rows // STRIP) * Format.of(value).strip_bytes(columns)


class Loader:
    """Copies rows of a source into a staging area, piece by piece, and has the crew repack them."""

    def __init__(self, memory: LinearMemory, run: Callable[[int], None]) -> None:
        self._memory = memory
        self._run = run
        self._program = memory.allocate(256, "the loader's program")
        self._staging = memory.allocate(_STAGING_BYTES, "the loader's staging area")

    def load(self, weight: Weight, source: WeightSource) -> None:
        """Fill ``weight``; only the crew's leader may call it. Raises BadCheckpoint if the source has another shape."""
        value = weight.value
        if tuple(source.shape) != value.shape:
            raise BadCheckpoint(f"{value} was to be loaded, but its source has shape {list(source.shape)}")
        if weight.format is None:
            values = _floats(source.planes(0, 1)["values"])
            self._memory.view(weight.region.offset, weight.nbytes)[:] = memoryview(values).cast("B")
            return
        columns = value.shape[1]
        for first, count in self._pieces(weight.format, value):
            kind, offsets = self._stage(weight.format, source, first, count)
            target = weight.region.offset + first // STRIP * weight.format.strip_bytes(columns)
            group = getattr(value.encoding, "group", 32)
            self._repack(weight.format, kind, offsets, target, count, columns, group)

    def _pieces(self, form: Format, value: Value) -> Iterator[tuple[int, int]]:
        """Ranges of whole strips that fit the staging area in whatever form they come."""
        rows, columns = value.shape
        row_bytes = columns * (4 if not form.affine else 1) + 2 * 4 * (columns // form.group)
        step = max(_STAGING_BYTES // row_bytes // STRIP, 1) * STRIP
        for first in range(0, rows, step):
            yield first, min(step, rows - first)

    def _stage(self, form: Format, source: WeightSource, first: int, count: int) -> tuple[int, tuple[int, ...]]:
        """Copy rows to the staging area: the kind of their layout, and where its parts begin."""
        kind, raw_form = _RAW.get(source.encoding, (0, None))
        if form == raw_form:
            return kind, self._copy(source.raw(first, count))
        planes: Mapping[str, Any] = source.planes(first, count)
        if not form.affine:
            return _DENSE_SOURCE, self._copy(_bytes(planes["values"]))
        names = ("codes", "scales", "minima") if form.number & 1 else ("codes", "scales")
        return _PLANES, self._copy(*(_bytes(planes[name]) for name in names))

    def _copy(self, *parts: memoryview) -> tuple[int, ...]:
        offset, offsets = self._staging.offset, []
        for part in parts:
            if offset + len(part) > self._staging.offset + self._staging.nbytes:
                # One strip of very long rows: the area grows once.
                self._memory.free(self._staging)
                self._staging = self._memory.allocate(2 * sum(len(p) + 64 for p in parts), "the loader's staging area")
                return self._copy(*parts)
            self._memory.view(offset, len(part))[:] = part
            offsets.append(offset)
            offset += -(-len(part) // 64) * 64
        return tuple(offsets)

    def _repack(
        self, form: Format, kind: int, offsets: tuple[int, ...], target: int, count: int, columns: int, group: int
    ) -> None:
        rows, scales, minima = (*offsets, 0, 0)[:3]
        arguments = (rows, scales, minima, target, count, columns, form.number, kind, group)
        program = encode([Instruction("repack", arguments, (), ())], {}, 0, 0)
        self._memory.view(self._program.offset, len(program))[:] = program
        self._run(self._program.offset)


def _bytes(plane: Any) -> memoryview:
    return memoryview(np.ascontiguousarray(plane)).cast("B")


def _floats(values: Any) -> Any:
    array = np.ascontiguousarray(values).reshape(-1)
    if array.dtype == np.uint16:  # bf16 comes as its bits
        return (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return array.astype(np.float32)
