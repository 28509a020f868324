"""A checkpoint's tensor as a backend pulls it: raw rows of the file, or planes in the encoding chosen for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from pie_edge.errors import Unsupported
from pie_edge.program.encodings import Dense, DType, Encoding
from pie_edge.weights.grouped import GroupedTensor, MadeTensor
from pie_edge.weights.recipes import native_encoding
from pie_edge.weights.repack import repack
from pie_edge.weights.stacked import AnyTensor, StackedTensor, by_matrix, joined
from pie_edge.weights.tensor import Tensor
from pie_edge.weights.widen import choose, widen


@dataclass(frozen=True, slots=True)
class FileWeight:
    """``target`` is what the Program says the weight is in; the file's own encoding fits it exactly."""

    tensor: Tensor
    target: Encoding

    @property
    def encoding(self) -> str:
        return self.tensor.encoding

    @property
    def shape(self) -> tuple[int, ...]:
        return _flat(self.tensor.shape)

    def raw(self, first: int, count: int) -> memoryview:
        row = self.tensor.nbytes // self.tensor.rows
        return self.tensor.span.part(first * row, count * row).view()

    def planes(self, first: int, count: int) -> dict[str, Any]:
        return repack(self.tensor, self.target, slice(first, first + count))


@dataclass(frozen=True, slots=True)
class MadeWeight:
    """A matrix that the file keeps as several tensors."""

    tensor: MadeTensor | StackedTensor
    target: Encoding
    encoding: str = "several tensors"
    """Not a file's: nobody must ask for its raw rows."""

    @property
    def shape(self) -> tuple[int, ...]:
        return _flat(self.tensor.shape)

    def raw(self, first: int, count: int) -> memoryview:
        raise NotImplementedError("its rows don't lie in the file in one piece")

    def planes(self, first: int, count: int) -> dict[str, Any]:
        return widen(self.tensor.planes(first, count), self.tensor.native, self.target)

    def packed(self, first: int, count: int) -> dict[str, Any] | None:
        """As MLX packs codes, where the file has them so: see ``backend.PackedSource``."""
        if isinstance(self.tensor, GroupedTensor) and self.target == self.tensor.native:
            return self.tensor.packed(first, count)
        return None


WholeWeight = FileWeight | MadeWeight


@dataclass(frozen=True, slots=True)
class RowsOf:
    """Some rows of a file's tensor, one of several weights that share it. A vector's rows are its values."""

    whole: WholeWeight
    shape: tuple[int, ...]
    runs: tuple[tuple[int, int], ...]
    """(first, count) of rows of the tensor that lie together, in the weight's order."""

    @property
    def encoding(self) -> str:
        return self.whole.encoding

    @property
    def target(self) -> Encoding:
        return self.whole.target

    def raw(self, first: int, count: int) -> memoryview:
        parts = [self.whole.raw(*run) for run in self._within(first, count)]
        return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))

    def planes(self, first: int, count: int) -> dict[str, Any]:
        if len(self.shape) == 1:
            values = self.whole.planes(0, 1)["values"]
            return {"values": np.concatenate([values[:, at : at + size] for at, size in self.runs], axis=1)}
        parts = [self.whole.planes(*run) for run in self._within(first, count)]
        return parts[0] if len(parts) == 1 else {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}

    def _within(self, first: int, count: int) -> Iterator[tuple[int, int]]:
        """Where ``count`` rows from ``first`` lie in the tensor."""
        for at, size in self.runs:
            begin, end = max(first, 0), min(first + count, size)
            if begin < end:
                yield at + begin, end - begin
            first -= size


@dataclass(frozen=True, slots=True)
class Transposed:
    """Some columns of a tensor that the file keeps as ``[columns, rows]``: safetensors do, and those are dense."""

    whole: WholeWeight
    shape: tuple[int, ...]
    first: int
    encoding: str = "transposed"

    @property
    def target(self) -> Encoding:
        return self.whole.target

    def raw(self, first: int, count: int) -> memoryview:
        raise NotImplementedError("no row of it lies in the file in one piece")

    def planes(self, first: int, count: int) -> dict[str, Any]:
        start = self.first + first
        values = self.whole.planes(0, self.shape[1])["values"]
        return {"values": np.ascontiguousarray(values[:, start : start + count].T)}


@dataclass(frozen=True, slots=True)
class PartOfEach:
    """Of matrices that a file has one below another the rows from ``first`` on, every ``step``-th, or of its rows of numbers
    the numbers. ``transposed`` matrices are dense."""

    whole: WholeWeight
    shape: tuple[int, ...]
    matrices: int
    first: int
    step: int
    transposed: bool
    encoding: str = "part of each"

    @property
    def target(self) -> Encoding:
        return self.whole.target

    def raw(self, first: int, count: int) -> memoryview:
        raise NotImplementedError("its rows don't lie in the file in one piece")

    def planes(self, first: int, count: int) -> dict[str, Any]:
        rows = self.shape[0] // self.matrices
        if len(self.shape) == 1:
            values = self.whole.planes(0, self.matrices)["values"][:, self.first :: self.step][:, :rows]
            return {"values": np.ascontiguousarray(values).reshape(1, -1)}
        return joined(self._of_matrix(*some) for some in by_matrix(first, count, rows))

    def _of_matrix(self, matrix: int, first: int, count: int) -> dict[str, Any]:
        each = self.whole.shape[0] // self.matrices
        start, length = self.first + self.step * first, self.step * (count - 1) + 1
        if self.transposed:
            values = self.whole.planes(matrix * each, each)["values"]
            return {"values": np.ascontiguousarray(values[:, start : start + length : self.step].T)}
        found = self.whole.planes(matrix * each + start, length)
        return {name: np.ascontiguousarray(plane[:: self.step]) for name, plane in found.items()}


def _flat(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Matrices one below another are one."""
    return shape if len(shape) < 3 else (math.prod(shape[:-1]), shape[-1])


@dataclass(frozen=True, slots=True)
class Computed:
    """A vector that follows from the metadata."""

    values: tuple[float, ...]
    encoding: str = "computed"

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.values),)

    @property
    def target(self) -> Encoding:
        return Dense(DType.F32)

    def raw(self, first: int, count: int) -> memoryview:
        raise NotImplementedError("it is in no file")

    def planes(self, first: int, count: int) -> dict[str, Any]:
        return {"values": np.array([self.values], np.float32)}


AnyWeight = WholeWeight | RowsOf | Transposed | PartOfEach | Computed


class Wanted(Protocol):
    """A weight as a family lists it (``model.spec.WeightSpec``)."""

    @property
    def name(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def first(self) -> int: ...
    @property
    def runs(self) -> tuple[tuple[int, int], ...]: ...
    @property
    def transposed(self) -> bool: ...
    @property
    def values(self) -> tuple[float, ...]: ...
    @property
    def matrices(self) -> int: ...
    @property
    def step(self) -> int: ...


def weight_sources(
    tensors: Mapping[str, AnyTensor], wanted: Iterable[Wanted], supported: Callable[[Encoding], bool]
) -> dict[str, AnyWeight]:
    """Each weight by its name, in the narrowest exact encoding that the device takes. Raises Unsupported."""
    return {weight.name: _source(tensors, weight, supported) for weight in wanted}


def _source(tensors: Mapping[str, AnyTensor], wanted: Wanted, supported: Callable[[Encoding], bool]) -> AnyWeight:
    if wanted.values:
        return Computed(wanted.values)
    tensor = tensors[wanted.source]
    if isinstance(tensor, Tensor) and _wide(tensor.shape) == _wide(wanted.shape):
        # Without the axes of one that convolutions have.
        tensor = replace(tensor, shape=wanted.shape)
    whole = file_weight(tensor, supported)
    if wanted.matrices and (whole.shape != wanted.shape or wanted.transposed):
        return PartOfEach(whole, wanted.shape, wanted.matrices, wanted.first, wanted.step, wanted.transposed)
    if wanted.transposed:
        return Transposed(whole, wanted.shape, wanted.first)
    runs = wanted.runs or ((wanted.first, wanted.shape[0]),)
    return whole if whole.shape == wanted.shape and not wanted.runs else RowsOf(whole, wanted.shape, runs)


def _wide(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(count for count in shape if count != 1)


def file_weight(tensor: AnyTensor, supported: Callable[[Encoding], bool]) -> WholeWeight:
    """The weight in the narrowest exact encoding that the device takes. Raises Unsupported, naming file and tensor."""
    try:
        if not isinstance(tensor, Tensor):
            return MadeWeight(tensor, choose(tensor.native, supported))
        return FileWeight(tensor, choose(native_encoding(tensor.encoding), supported))
    except Unsupported as error:
        raise Unsupported(f"{tensor.parts[0].span.source.path}: tensor {tensor.name!r}: {error}") from None
