"""Weights on the device: codes as MLX packs them, scales and biases beside them; dense ones as they are.

A *bias* is what MLX calls a minimum. MLX multiplies by groups of 32, 64 and 128: a larger group is several of those with the same
scale, and what has groups of 16, or codes into a table, is taken apart before it is multiplied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from pie_edge.backend import PackedSource, Stop, WeightSource
from pie_edge.backends.metal.device import Mode
from pie_edge.backends.metal.memory import DTYPES, Ledger, host
from pie_edge.backends.metal.packing import floats, pack, words_of
from pie_edge.program.encodings import Affine, Dense, DType, Encoding, Lookup
from pie_edge.program.ops import Value

_BITS = (4, 5, 6, 8)
_SCALES = (DType.F32, DType.F16, DType.BF16)
_GROUPS = (128, 64, 32)
_CHUNK = 1 << 20
"""Weights that are repacked at once."""


def supports(encoding: Encoding) -> bool:
    """Dense f32, f16, bf16; affine codes of 4, 5, 6 and 8 bits and codes of 4 bits into a table, in groups of 32 or a multiple,
    the former also of 16, with scales of one level."""
    if isinstance(encoding, Dense):
        return encoding.dtype in _SCALES
    whole = encoding.group % 32 == 0 or (isinstance(encoding, Affine) and encoding.group == 16)
    return whole and encoding.bits in _BITS and encoding.scale in _SCALES


@dataclass(frozen=True, slots=True)
class Form:
    """How a matrix lies on the device."""

    columns: int
    dense: DType | None
    """Of what is not quantised."""
    bits: int = 0
    group: int = 0
    """Columns that share a scale, as they are stored."""
    scale: DType = DType.F32
    zero: int = 0
    """The constant zero point, of what has no biases."""
    biased: bool = False
    table: tuple[float, ...] = ()

    @property
    def is_mlx(self) -> bool:
        """Whether MLX multiplies by it as it lies."""
        return self.group in _GROUPS and self.biased

    @property
    def groups(self) -> int:
        return self.columns // self.group

    def row_bytes(self) -> int:
        if self.dense:
            return self.columns * self.dense.nbytes
        return 4 * words_of(self.columns, self.bits) + (1 + self.biased) * self.groups * self.scale.nbytes


def form_of(encoding: Encoding, columns: int, mode: Mode) -> Form:
    """Of a supported encoding. A processor multiplies halves many times slower than floats: there they are widened once, and zero
    points become biases, which MLX's own product takes."""
    wide = mode is Mode.OPS
    if isinstance(encoding, Dense):
        return Form(columns, DType.F32 if wide else encoding.dtype)
    assert isinstance(encoding.scale, DType)
    group = next((group for group in _GROUPS if encoding.group % group == 0), encoding.group)
    scale = DType.F32 if wide else encoding.scale
    if isinstance(encoding, Lookup):
        return Form(columns, None, 4, group, scale, table=encoding.table)
    biased = encoding.zero is None or wide
    return Form(columns, None, encoding.bits, group, scale, 0 if biased else encoding.zero or 0, biased)


@dataclass(frozen=True, slots=True)
class Matrix:
    """[rows, columns]: ``values`` are codes, or what a dense one holds; scales and biases are [rows, groups]."""

    form: Form
    values: mx.array
    scales: mx.array | None = None
    biases: mx.array | None = None

    @property
    def rows(self) -> int:
        return int(self.values.shape[0])

    @property
    def nbytes(self) -> int:
        return matrix_bytes(self.form, self.rows)

    def arrays(self) -> tuple[mx.array, ...]:
        return tuple(array for array in (self.values, self.scales, self.biases) if array is not None)


@dataclass(frozen=True, slots=True)
class Vector:
    """A weight of one axis, as float32. Its values are kept: rope's divisors are needed on the host."""

    array: mx.array
    values: NDArray[np.float32]

    @property
    def nbytes(self) -> int:
        return self.values.nbytes


Weight = Matrix | Vector


def matrix_bytes(form: Form, rows: int) -> int:
    return rows * form.row_bytes()


def weight_bytes(value: Value, mode: Mode) -> int:
    """What a weight will take."""
    assert value.encoding is not None
    if len(value.shape) == 1:
        return 4 * value.shape[0]
    return matrix_bytes(form_of(value.encoding, value.shape[1], mode), value.shape[0])


class Loader:
    """Brings weights to the device, on the thread that it is called on."""

    def __init__(self, ledger: Ledger, mode: Mode) -> None:
        self._ledger = ledger
        self._mode = mode

    def load(self, value: Value, source: WeightSource, stop: Stop) -> Weight:
        """Raises OutOfMemory, and ends between two megabytes when it is told to ``stop``: what it took is given back."""
        nbytes = weight_bytes(value, self._mode)
        self._ledger.take(nbytes, f"weight {value.name}")
        try:
            return self._vector(source) if len(value.shape) == 1 else self._matrix(value, source, stop)
        except BaseException:
            self._ledger.give_back(nbytes)
            raise

    def free(self, weight: Weight) -> None:
        self._ledger.give_back(weight.nbytes)

    def _vector(self, source: WeightSource) -> Vector:
        values = floats(source.planes(0, 1)["values"].reshape(-1))
        return Vector(mx.array(values), values)

    def _matrix(self, value: Value, source: WeightSource, stop: Stop) -> Matrix:
        assert value.encoding is not None
        rows, columns = value.shape
        form = form_of(value.encoding, columns, self._mode)
        # Filled where they lie: an array made of another is a copy, and for a while both are there.
        matrix, rooms = _empty(form, rows, self._mode)
        for first, count in _chunks(rows, max(_CHUNK // columns, 1)):
            stop.look()
            for room, plane in zip(rooms, _planes(form, value.encoding, source, first, count), strict=True):
                room[first : first + count] = plane
        return matrix


def _chunks(rows: int, most: int) -> Iterator[tuple[int, int]]:
    for first in range(0, rows, most):
        yield first, min(most, rows - first)


def _empty(form: Form, rows: int, mode: Mode) -> tuple[Matrix, list[NDArray[Any]]]:
    """A matrix, and the memory of its arrays."""
    if form.dense and mode is Mode.OPS:
        # Column by column: a processor's product is twice as quick.
        stored = mx.zeros((form.columns, rows))
        return Matrix(form, stored.T), [host(stored).T]
    if form.dense:
        arrays = [mx.zeros((rows, form.columns), DTYPES[form.dense])]
    else:
        arrays = [mx.zeros((rows, words_of(form.columns, form.bits)), mx.uint32)]
        arrays += [mx.zeros((rows, form.groups), DTYPES[form.scale]) for _ in range(1 + form.biased)]
    return Matrix(form, *arrays), [host(mx.view(a, mx.uint16) if a.dtype == mx.bfloat16 else a) for a in arrays]


def _planes(form: Form, encoding: Encoding, source: WeightSource, first: int, count: int) -> list[NDArray[Any]]:
    """What goes into each array of these rows. What MLX wrote goes there as it is."""
    packed = source.packed(first, count) if isinstance(source, PackedSource) else None
    planes = source.planes(first, count) if packed is None else packed
    if isinstance(encoding, Dense):
        return [planes["values"] if form.dense is encoding.dtype else floats(planes["values"])]
    shared = encoding.group // form.group
    scales = _repeated(planes["scales"], shared)
    codes = pack(planes["codes"], form.bits) if packed is None else planes["codes"]
    found = [codes, _as(form.scale, scales)]
    if "minima" in planes:
        found.append(_as(form.scale, _repeated(planes["minima"], shared)))
    elif form.biased:
        assert isinstance(encoding, Affine)
        found.append(floats(scales) * np.float32(-(encoding.zero or 0)))
    return found


def _repeated(plane: NDArray[Any], count: int) -> NDArray[Any]:
    return np.repeat(plane, count, axis=1) if count > 1 else plane


def _as(scale: DType, plane: NDArray[Any]) -> NDArray[Any]:
    """Scales or biases in the type that they are stored in: their own, or float32."""
    return floats(plane) if scale is DType.F32 else plane
