"""How a weight matrix lies on a device: dense, affine groups, or a lookup of 16 values.

A quantised matrix ``[rows, columns]`` is a few *planes*, each a plain array. Codes are unsigned integers; consecutive
``group`` columns of a row share a scale. With ``s``, ``m`` the group's scale and minimum:

    affine, constant zero   w = s * (code - zero)
    affine, minimum plane   w = s * code + m
    lookup                  w = s * table[code]

A *two-level* scale is ``super_scale * factor``: an f16 per ``super_group`` columns times an int8 per group, kept apart
because their product doesn't fit f16 exactly. The minimum of a two-level encoding is two-level as well.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from enum import StrEnum


class DType(StrEnum):
    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"
    U32 = "u32"
    I32 = "i32"
    U8 = "u8"
    I8 = "i8"

    @property
    def nbytes(self) -> int:
        return {"f32": 4, "u32": 4, "i32": 4, "f16": 2, "bf16": 2, "u8": 1, "i8": 1}[self.value]


@dataclass(frozen=True, slots=True)
class Dense:
    """Values as they are."""

    dtype: DType

    def __str__(self) -> str:
        return self.dtype.value


@dataclass(frozen=True, slots=True)
class TwoLevel:
    """A scale that is an f16 per ``super_group`` columns times an int8 factor per group."""

    super_group: int = 256

    def __str__(self) -> str:
        return f"i8xf16/{self.super_group}"


@dataclass(frozen=True, slots=True)
class Affine:
    """Codes of ``bits`` bits in groups; ``zero`` is the constant zero point, or None for a plane of minima."""

    bits: int
    group: int
    scale: DType | TwoLevel
    zero: int | None

    def __str__(self) -> str:
        zero = "min" if self.zero is None else f"z{self.zero}"
        return f"affine{self.bits}g{self.group}-{self.scale}-{zero}"


@dataclass(frozen=True, slots=True)
class Lookup:
    """Four-bit codes that index ``table`` (16 values), scaled per group (IQ4, MXFP4)."""

    group: int
    scale: DType | TwoLevel
    table: tuple[float, ...]

    @property
    def bits(self) -> int:
        return 4

    def __str__(self) -> str:
        # Programs are told apart by their text, and two tables are two encodings.
        return f"lookup4g{self.group}-{self.scale}-t{zlib.crc32(repr(self.table).encode()):08x}"


Encoding = Dense | Affine | Lookup


@dataclass(frozen=True, slots=True)
class Plane:
    """One array of an encoded matrix: ``codes``, ``scales``, ``minima``, ``super_scales`` or ``super_minima``."""

    name: str
    dtype: DType
    shape: tuple[int, int]


def encoded_bytes(encoding: Encoding, shape: tuple[int, ...]) -> int:
    """Bytes of a weight of this shape on a device, codes packed to their bits."""
    rows, columns = shape if len(shape) == 2 else (1, shape[0])
    total = 0
    for plane in planes(encoding, rows, columns):
        bits = 8 * plane.dtype.nbytes
        if plane.name == "codes" and not isinstance(encoding, Dense):
            bits = encoding.bits
        total += -(-plane.shape[0] * plane.shape[1] * bits // 8)
    return total


def planes(encoding: Encoding, rows: int, columns: int) -> tuple[Plane, ...]:
    """The planes of a ``[rows, columns]`` matrix; codes are one byte each here, a backend packs them as it likes."""
    if isinstance(encoding, Dense):
        return (Plane("values", encoding.dtype, (rows, columns)),)
    groups = columns // encoding.group
    leaf = DType.I8 if isinstance(encoding.scale, TwoLevel) else encoding.scale
    has_minima = isinstance(encoding, Affine) and encoding.zero is None
    found = [Plane("codes", DType.U8, (rows, columns)), Plane("scales", leaf, (rows, groups))]
    if has_minima:
        found.append(Plane("minima", leaf, (rows, groups)))
    if isinstance(encoding.scale, TwoLevel):
        supers = columns // encoding.scale.super_group
        found.append(Plane("super_scales", DType.F16, (rows, supers)))
        if has_minima:
            found.append(Plane("super_minima", DType.F16, (rows, supers)))
    return tuple(found)
