"""How to take each GGUF encoding apart, as data: one small rule for every plane, run by NumPy or by a shader.

A file stores a row as blocks of a few bytes. An integer plane is bit fields gathered from the block. Element ``i`` of
a ``Field`` has the mixed-radix digits of ``i`` over its axes, slowest first. Digits of byte axes count bytes, those of
bit axes move within the byte:

    byte  = offset + the byte digits as one mixed-radix number      shift = shift + Σ bit digit · axis.shift
    value = (block[byte] >> shift & (1 << width) - 1) << into

The fields of a segment are ORed, the segments of a rule follow each other, and the result is ``sign · value + add``
modulo 256. That is all there is: one byte is read per field, no field crosses a byte.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from pie_edge.errors import Unsupported
from pie_edge.program.encodings import Affine, Dense, DType, Encoding, Lookup, TwoLevel
from pie_edge.weights.formats import BLOCKS, Block


@dataclass(frozen=True, slots=True)
class Axis:
    """A digit of an element's index: ``count`` values, each ``shift`` bits further, or a byte further if that is 0."""

    count: int
    shift: int = 0


@dataclass(frozen=True, slots=True)
class Field:
    """Bit fields of ``width`` bits from byte ``offset`` of the block on, shifted left by ``into``."""

    offset: int
    width: int
    axes: tuple[Axis, ...]
    into: int = 0
    shift: int = 0

    @property
    def count(self) -> int:
        """Elements of a block."""
        return math.prod(axis.count for axis in self.axes)

    @property
    def nbytes(self) -> int:
        """Bytes of the block that are read."""
        return math.prod(axis.count for axis in self.axes if not axis.shift)


@dataclass(frozen=True, slots=True)
class Integers:
    """A u8 or i8 plane: segments of ORed fields, then ``sign · value + add`` modulo 256."""

    segments: tuple[tuple[Field, ...], ...]
    add: int = 0
    sign: int = 1

    @property
    def count(self) -> int:
        return sum(segment[0].count for segment in self.segments)


@dataclass(frozen=True, slots=True)
class Half:
    """An f16 plane with one value a block, as it stands at ``offset``."""

    offset: int


@dataclass(frozen=True, slots=True)
class Exponent:
    """A bf16 plane with one value a block: ``2 ** (byte − 128)`` of the byte at ``offset``.

    That is half of what the byte (E8M0) means, because MXFP4's table is doubled to be whole numbers. bf16 holds it, the
    two smallest as subnormals.
    """

    offset: int


Rule = Integers | Half | Exponent


@dataclass(frozen=True, slots=True)
class Recipe:
    """The encoding a file's blocks become, and the rule for each of its planes by name."""

    encoding: Affine | Lookup
    block: Block
    rules: Mapping[str, Rule]


IQ4_TABLE = (-127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0, 89.0, 113.0)
"""The non-linear four-bit code of IQ4_NL and IQ4_XS."""
FP4_TABLE = (0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 0.0, -1.0, -2.0, -3.0, -4.0, -6.0, -8.0, -12.0)
"""E2M1, doubled."""


def _nibbles(offset: int, runs: int, length: int) -> Field:
    """``runs`` runs of ``length`` bytes; each run's low nibbles come before its high ones."""
    return Field(offset, 4, (Axis(runs), Axis(2, shift=4), Axis(length)))


def _bit_string(offset: int, into: int) -> Field:
    """Thirty-two single bits in order."""
    return Field(offset, 1, (Axis(4), Axis(8, shift=1)), into)


def _pairs(offset: int, into: int = 0) -> Field:
    """Two bits each: two runs of 32 bytes, whose four pairs are 32 weights apart."""
    return Field(offset, 2, (Axis(2), Axis(4, shift=2), Axis(32)), into)


def _planed_bits(offset: int, into: int) -> Field:
    """One bit each from 32 bytes: bit ``k`` of every byte belongs to the ``k``-th 32 weights."""
    return Field(offset, 1, (Axis(8, shift=1), Axis(32)), into)


def _bytes(offset: int, count: int) -> Field:
    return Field(offset, 8, (Axis(count),))


def _six_bits(low: int, sign: int) -> Integers:
    """Eight six-bit factors of Q4_K and Q5_K, whose 12 bytes start at byte 4.

    The first four are the low six bits of four bytes; the others have four bits in the last four bytes and two at the
    top of the bytes of the first. ``low`` is 0 for the scales and 4 for the minima.
    """
    four = (Axis(4),)
    upper = Field(12, 4, four, shift=low), Field(4 + low, 2, four, into=4, shift=6)
    return Integers(((Field(4 + low, 6, four),), upper), sign=sign)


_Q3_SCALES = Integers(
    (
        (
            Field(96, 4, (Axis(2, shift=4), Axis(8))),
            Field(104, 2, (Axis(4, shift=2), Axis(4)), into=4),
        ),
    ),
    add=-32,
)
_IQ4_XS_SCALES = Integers(
    (
        (
            Field(4, 4, (Axis(4), Axis(2, shift=4))),
            Field(2, 2, (Axis(2), Axis(4, shift=2)), into=4),
        ),
    ),
    add=-32,
)


def _rule(*fields: Field, add: int = 0) -> Integers:
    return Integers((fields,), add)


def _two_level(bits: int, group: int, zero: int | None) -> Affine:
    return Affine(bits, group, TwoLevel(256), zero)


def _simple(bits: int, zero: int | None) -> Affine:
    return Affine(bits, 32, DType.F16, zero)


def _k_rules(codes: Integers) -> dict[str, Rule]:
    """Q4_K and Q5_K. Minima are subtracted there and added here, so their factors change sign."""
    halves: dict[str, Rule] = {"super_scales": Half(0), "super_minima": Half(2)}
    return {"codes": codes, "scales": _six_bits(0, 1), "minima": _six_bits(4, -1)} | halves


_Q2_RULES: dict[str, Rule] = {
    "codes": _rule(_pairs(16)),
    "scales": _rule(Field(0, 4, (Axis(16),))),
    "minima": Integers(((Field(0, 4, (Axis(16),), shift=4),),), sign=-1),
    "super_scales": Half(80),
    "super_minima": Half(82),
}
_Q3_RULES: dict[str, Rule] = {
    "codes": _rule(_pairs(32), _planed_bits(0, into=2)),
    "scales": _Q3_SCALES,
    "super_scales": Half(108),
}
_Q6_LOW = Field(0, 4, (Axis(2), Axis(2, shift=4), Axis(2), Axis(32)))
_Q6_RULES: dict[str, Rule] = {
    "codes": _rule(_Q6_LOW, _pairs(128, into=4)),
    "scales": _rule(_bytes(192, 16)),
    "super_scales": Half(208),
}
_IQ4_XS_RULES: dict[str, Rule] = {
    "codes": _rule(_nibbles(8, 8, 16)),
    "scales": _IQ4_XS_SCALES,
    "super_scales": Half(0),
}

_ENTRIES: dict[str, tuple[Affine | Lookup, dict[str, Rule]]] = {
    "Q4_0": (_simple(4, 8), {"codes": _rule(_nibbles(2, 1, 16)), "scales": Half(0)}),
    "Q4_1": (_simple(4, None), {"codes": _rule(_nibbles(4, 1, 16)), "scales": Half(0), "minima": Half(2)}),
    "Q5_0": (_simple(5, 16), {"codes": _rule(_nibbles(6, 1, 16), _bit_string(2, 4)), "scales": Half(0)}),
    "Q5_1": (
        _simple(5, None),
        {"codes": _rule(_nibbles(8, 1, 16), _bit_string(4, 4)), "scales": Half(0), "minima": Half(2)},
    ),
    "Q8_0": (_simple(8, 128), {"codes": _rule(_bytes(2, 32), add=128), "scales": Half(0)}),
    "Q2_K": (_two_level(2, 16, None), _Q2_RULES),
    "Q3_K": (_two_level(3, 16, 4), _Q3_RULES),
    "Q4_K": (_two_level(4, 32, None), _k_rules(_rule(_nibbles(16, 4, 32)))),
    "Q5_K": (_two_level(5, 32, None), _k_rules(_rule(_nibbles(48, 4, 32), _planed_bits(16, into=4)))),
    "Q6_K": (_two_level(6, 16, 32), _Q6_RULES),
    "IQ4_NL": (Lookup(32, DType.F16, IQ4_TABLE), {"codes": _rule(_nibbles(2, 1, 16)), "scales": Half(0)}),
    "IQ4_XS": (Lookup(32, TwoLevel(256), IQ4_TABLE), _IQ4_XS_RULES),
    "MXFP4": (Lookup(32, DType.BF16, FP4_TABLE), {"codes": _rule(_nibbles(1, 1, 16)), "scales": Exponent(0)}),
}

RECIPES: Mapping[str, Recipe] = {
    name: Recipe(encoding, BLOCKS[name], rules) for name, (encoding, rules) in _ENTRIES.items()
}
"""Every quantised encoding that is read, by the file's own name."""

DENSE: Mapping[str, Dense] = {"F32": Dense(DType.F32), "F16": Dense(DType.F16), "BF16": Dense(DType.BF16)}
"""Encodings that stay as they are."""


def native_encoding(name: str) -> Encoding:
    """The narrowest planes that hold a file's encoding exactly."""
    if name in DENSE:
        return DENSE[name]
    if name in RECIPES:
        return RECIPES[name].encoding
    known = ", ".join([*DENSE, *RECIPES])
    raise Unsupported(
        f"weights encoded as {name} can't be used; known are {known}: take another quantisation of the model"
    )
