"""Weights on a device: packed as the kernels of GLSL and WGSL read them (``weights.glsl``, ``weights.wgsl``), split at the
binding limit."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pie_edge.backends.shared.region import Region, span
from pie_edge.program.encodings import Affine, Dense, DType, Encoding, Lookup

BLOCK = 32
"""Columns that lie together."""
_SCALES = {
    (DType.F16, False): 0,
    (DType.F16, True): 1,
    (DType.F32, False): 2,
    (DType.F32, True): 3,
    (DType.BF16, False): 4,
}
"""By the scale's type and whether there is a plane of minima: the SCALES constant of the kernels."""
HALF_SCALES = (0, 1)
_DENSE = {DType.F16: "f16", DType.BF16: "bf16", DType.F32: "f32"}
_HIGH_BITS = (5, 6)
"""Codes whose bits above the fourth lie apart, with the scales."""

Bytes = NDArray[np.uint8]


def supports(encoding: Encoding, odd: bool) -> bool:
    """Affine codes of 4 and 8 bits, with ``odd`` also of 5 and 6, in groups of 16, 32 or a multiple, with f16 or f32 scales;
    with ``odd`` codes of 4 bits into a table of whole numbers, with bf16 scales too; dense f32, f16, bf16."""
    if isinstance(encoding, Dense):
        return encoding.dtype in _DENSE
    if isinstance(encoding, Lookup):
        whole = all(value == int(value) and -128 <= value < 128 for value in encoding.table)
        return odd and whole and encoding.group % BLOCK == 0 and encoding.scale in (DType.F16, DType.F32, DType.BF16)
    if not isinstance(encoding, Affine) or encoding.bits not in (4, 8, *_HIGH_BITS * odd):
        return False
    whole = encoding.group == 16 or encoding.group % BLOCK == 0
    return whole and encoding.scale in (DType.F16, DType.F32)


@dataclass(frozen=True, slots=True)
class Packing:
    """How a matrix of ``columns`` columns is packed: what its kernels are specialised for."""

    format: str
    """``affine4``, ``affine5``, ``affine6``, ``affine8``, ``lookup4``, ``f16``, ``bf16``, ``f32``: the end of a shader's name."""
    columns: int
    interleaved: int
    """Rows of a row group."""
    group: int
    scales: int
    zero: float
    table: tuple[int, ...] = ()
    """Of ``lookup4``, what its codes stand for: the words of the kernels' constants."""

    @property
    def quantised(self) -> bool:
        return self.format.startswith(("affine", "lookup"))

    @property
    def blocks(self) -> int:
        return -(-self.columns // BLOCK)

    @property
    def vectors(self) -> int:
        """16-byte vectors of a row's block."""
        return {"affine8": 2, "f16": 4, "bf16": 4, "f32": 8}.get(self.format, 1)

    @property
    def high_bits(self) -> int:
        """Bits of a code that lie with the scales."""
        return {"affine5": 1, "affine6": 2}.get(self.format, 0)

    @property
    def scale_words(self) -> int:
        """Words of scales of a row."""
        if not self.quantised:
            return 0
        # A block is padded to 32 columns, and so are the groups.
        groups = -(-self.blocks * BLOCK // self.group)
        return (-(-groups // 2), groups, groups, 2 * groups, -(-groups // 2))[self.scales]

    def code_bytes(self, rows: int) -> int:
        return self._padded(rows) * self.blocks * self.vectors * 16

    @property
    def row_words(self) -> int:
        """Words of scales of a row, and then of its codes' high bits."""
        return self.scale_words + self.blocks * self.high_bits

    def scale_bytes(self, rows: int) -> int:
        return self._padded(rows) * self.row_words * 4

    def _padded(self, rows: int) -> int:
        return -(-rows // self.interleaved) * self.interleaved

    def rows_within(self, nbytes: int) -> int:
        """The most rows, whole row groups, whose codes and scales take no more than this."""
        group = self.interleaved
        one = self.code_bytes(group) + self.scale_bytes(group)
        # Scales begin at a multiple of 256.
        return max((nbytes - 256) // one, 1) * group


def packing(encoding: Encoding, columns: int, interleaved: int) -> Packing:
    """The packing of a supported encoding."""
    if isinstance(encoding, Dense):
        return Packing(_DENSE[encoding.dtype], columns, interleaved, BLOCK, 0, 0.0)
    assert isinstance(encoding.scale, DType)
    if isinstance(encoding, Lookup):
        words = struct.unpack("<4I", struct.pack("<16b", *map(int, encoding.table)))
        return Packing("lookup4", columns, interleaved, encoding.group, _SCALES[encoding.scale, False], 0.0, words)
    scales = _SCALES[encoding.scale, encoding.zero is None]
    return Packing(f"affine{encoding.bits}", columns, interleaved, encoding.group, scales, float(encoding.zero or 0))


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of a weight that lie together: within one binding."""

    first: int
    rows: int
    region: Region[Any]
    """Codes, then scales."""
    scales: int
    """Where the scales begin, in bytes from the region's start."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """A weight matrix on the device."""

    shape: tuple[int, int]
    packing: Packing
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Vector:
    """A weight of one axis, as float32. Its values are kept: rope's divisors are needed on the host."""

    region: Region[Any]
    values: NDArray[np.float32]


Weight = Matrix | Vector


def pack(packing: Packing, planes: Mapping[str, Any]) -> tuple[Bytes, Bytes]:
    """Codes and scales of whole row groups, as bytes. Rows are padded to whole row groups with zeros."""
    if not packing.quantised:
        return _interleave(packing, _columns(packing, planes["values"]), packing.vectors * 16), np.empty(0, np.uint8)
    codes, words = _columns(packing, planes["codes"]), _scale_words(packing, planes)
    if packing.high_bits:
        words = np.concatenate((words, _high_words(packing, codes)), axis=1)
        fours = (codes & np.uint8(15)).reshape(len(codes), -1, 2, 4)
        codes = (fours[:, :, 0] | (fours[:, :, 1] << np.uint8(4))).reshape(len(codes), -1)
    elif packing.vectors == 1:
        codes = codes[:, 0::2] | (codes[:, 1::2] << np.uint8(4))
    words = np.ascontiguousarray(words)
    scales = _interleave_items(packing, words.view(np.uint8).reshape(len(words), packing.row_words, 4))
    return _interleave(packing, codes, packing.vectors * 16), scales


def _high_words(packing: Packing, codes: Bytes) -> NDArray[np.uint32]:
    """[rows, words]: byte b of a word has the high bits of columns b, 4 + b, … from its lowest bit on."""
    bits = packing.high_bits
    high = (codes >> np.uint8(4)).reshape(len(codes), -1, 8 // bits, 4)
    found = np.zeros((len(codes), high.shape[1], 4), np.uint8)
    for place in range(8 // bits):
        found |= high[:, :, place] << np.uint8(bits * place)
    return found.view(np.uint32)[..., 0]


def _columns(packing: Packing, values: NDArray[Any]) -> NDArray[Any]:
    """[rows, whole blocks of columns]"""
    missing = packing.blocks * BLOCK - packing.columns
    return np.pad(values, ((0, 0), (0, missing))) if missing else values


def _interleave(packing: Packing, values: NDArray[Any], block_bytes: int) -> Bytes:
    data = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1, 16)
    return _interleave_items(packing, data)


def _interleave_items(packing: Packing, items: Bytes) -> Bytes:
    """[rows, items, bytes] → [row groups, items, interleaved rows, bytes], flat."""
    rows, count, nbytes = items.shape
    missing = -rows % packing.interleaved
    if missing:
        items = np.pad(items, ((0, missing), (0, 0), (0, 0)))
    # Moving whole items is ten times as fast as moving their bytes.
    whole = items.view(np.dtype((np.void, nbytes)))[..., 0].reshape(-1, packing.interleaved, count)
    return np.ascontiguousarray(whole.swapaxes(1, 2)).view(np.uint8).reshape(-1)


def _scale_words(packing: Packing, planes: Mapping[str, Any]) -> NDArray[np.uint32]:
    """[rows, scale words]"""
    scales = planes["scales"]
    rows, groups = scales.shape
    words = np.zeros((rows, packing.scale_words), np.uint32)
    if packing.scales in (0, 4):
        words.view(np.uint16)[:, :groups] = scales.view(np.uint16)
    elif packing.scales == 1:
        words.view(np.uint16)[:, 0 : 2 * groups : 2] = scales.view(np.uint16)
        words.view(np.uint16)[:, 1 : 2 * groups : 2] = planes["minima"].view(np.uint16)
    elif packing.scales == 2:
        words[:, :groups] = np.ascontiguousarray(scales, np.float32).view(np.uint32)
    else:
        words[:, 0 : 2 * groups : 2] = np.ascontiguousarray(scales, np.float32).view(np.uint32)
        words[:, 1 : 2 * groups : 2] = np.ascontiguousarray(planes["minima"], np.float32).view(np.uint32)
    return words


def split_rows(rows: int, most: int) -> Iterator[tuple[int, int]]:
    """(first, count) of ranges of at most ``most`` rows."""
    for first in range(0, rows, most):
        yield first, min(most, rows - first)


def together(weights: Sequence[Weight], max_binding: int) -> bool:
    """Whether one launch can have them: matrices of one layout, each in one part, all within one binding, and so their biases."""
    matrices = [weight for weight in weights if isinstance(weight, Matrix)]
    biases = [weight.region for weight in weights if isinstance(weight, Vector)]
    if any(len(matrix.parts) > 1 for matrix in matrices):
        return False
    alike = all(replace(m.packing, zero=0.0) == replace(matrices[0].packing, zero=0.0) for m in matrices)
    bound = [matrix.parts[0].region for matrix in matrices], biases
    return alike and all(_bindable(regions, max_binding) for regions in bound)


def _bindable(regions: Sequence[Region[Any]], max_binding: int) -> bool:
    return all(r.buffer is regions[0].buffer for r in regions) and (not regions or span(regions).nbytes <= max_binding)
