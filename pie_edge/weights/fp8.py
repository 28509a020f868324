"""Matrices of eight-bit floats with a scale for each block: ``X.weight`` F8_E4M3 and ``X.weight_scale_inv``, by 128 × 128 mostly.

A weight is its float times the scale of its block, multiplied in float32. The values span 2^-9 … 448, which no integer codes
hold: float32 is the narrowest exact plane.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pie_edge.errors import BadCheckpoint, Unsupported
from pie_edge.program.encodings import Dense, DType
from pie_edge.weights.recipes import DENSE
from pie_edge.weights.repack import repack
from pie_edge.weights.tensor import Tensor
from pie_edge.weights.widen import Planes, dequantise_planes

SCALE = ".weight_scale_inv"


def _e4m3() -> np.ndarray[Any, np.dtype[np.float32]]:
    """Every value by its code: a sign, four bits of exponent (bias 7), three of mantissa; all ones is NaN."""
    codes = np.arange(256)
    exponent, mantissa = codes >> 3 & 15, codes & 7
    size = np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0 ** (exponent - 10))
    values = np.where(codes & 127 == 127, np.nan, size)
    return np.where(codes < 128, values, -values).astype(np.float32)


VALUES = _e4m3()


@dataclass(frozen=True, slots=True)
class BlockScaledTensor:
    """A matrix and its scales; to its readers much like one ``Tensor``."""

    codes: Tensor
    scales: Tensor
    block: tuple[int, int]
    """Rows and columns that share a scale."""

    @property
    def name(self) -> str:
        return self.codes.name

    @property
    def shape(self) -> tuple[int, ...]:
        return self.codes.shape

    @property
    def encoding(self) -> str:
        return self.codes.encoding

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self.scales.nbytes

    @property
    def parts(self) -> tuple[Tensor, ...]:
        return self.codes, self.scales

    @property
    def native(self) -> Dense:
        return Dense(DType.F32)

    def planes(self, first: int, count: int) -> Planes:
        """``count`` rows from ``first``."""
        codes = np.frombuffer(self.codes.span.view(), np.uint8).reshape(self.shape)[first : first + count]
        scales = dequantise_planes(DENSE[self.scales.encoding], repack(self.scales))
        by_row = scales[np.arange(first, first + len(codes)) // self.block[0]]
        return {"values": VALUES[codes] * np.repeat(by_row, self.block[1], axis=1)[:, : self.shape[1]]}


def block_scaled(tensors: Mapping[str, Tensor], stem: str, config: Mapping[str, Any]) -> BlockScaledTensor:
    """The matrix ``X.weight`` of a stem. Raises Unsupported or BadCheckpoint."""
    codes, scales, block = tensors.get(f"{stem}.weight"), tensors[stem + SCALE], config.get("weight_block_size")
    path = scales.span.source.path
    if not isinstance(block, list) or len(block) != 2 or not all(type(n) is int and n > 0 for n in block):
        raise Unsupported(
            f"{path}: {stem} has weight_block_size = {block!r}; FP8 with blocks of rows and columns is known"
        )
    if codes is None or codes.encoding != "F8_E4M3" or len(codes.shape) != 2:
        what = "is missing" if codes is None else f"is {codes.encoding} {list(codes.shape)}"
        raise BadCheckpoint(
            f"{path}: tensor {stem}.weight {what}; a matrix of F8_E4M3 belongs to its scales. Fetch it again"
        )
    shape = tuple(-(-extent // size) for extent, size in zip(codes.shape, block, strict=True))
    if scales.shape != shape or scales.encoding not in DENSE:
        raise BadCheckpoint(
            f"{path}: tensor {scales.name} is {scales.encoding} {list(scales.shape)}; blocks of {block} need floats {list(shape)}"
        )
    return BlockScaledTensor(codes, scales, (block[0], block[1]))
