"""From planes to wider planes that hold the same weights exactly, and from planes to float32.

Widening never rounds: codes grow to four or eight bits, a two-level scale becomes the f32 product (11 + 8 bits of
mantissa), a lookup becomes eight-bit affine when its table holds whole numbers, and dense f32 holds anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pie_edge.errors import Unsupported
from pie_edge.program.encodings import Affine, Dense, DType, Encoding, Lookup, TwoLevel

Planes = dict[str, NDArray[Any]]
Floats = NDArray[np.float32]

NUMPY: dict[DType, np.dtype[Any]] = {
    DType.F32: np.dtype("<f4"),
    DType.F16: np.dtype("<f2"),
    DType.BF16: np.dtype("<u2"),
    DType.U32: np.dtype("<u4"),
    DType.I32: np.dtype("<i4"),
    DType.U8: np.dtype("u1"),
    DType.I8: np.dtype("i1"),
}
"""How a plane's dtype is held in NumPy."""

_TABLE_ZERO = 128


def candidates(encoding: Encoding) -> Iterator[Encoding]:
    """Encodings that hold ``encoding`` exactly, itself first, then by the bytes they take."""
    yield encoding
    if isinstance(encoding, Lookup):
        wider_scale = replace(encoding, scale=DType.F32)
        if encoding.scale != DType.F32:
            yield wider_scale
        if all(value == int(value) and -128 <= value < 128 for value in encoding.table):
            yield from _affine_candidates(Affine(8, encoding.group, encoding.scale, _TABLE_ZERO))
    elif isinstance(encoding, Affine):
        yield from _affine_candidates(encoding)
    yield Dense(DType.F32)


def _affine_candidates(encoding: Affine) -> Iterator[Affine]:
    for bits in (encoding.bits, 4, 8):
        if bits >= encoding.bits:
            yield replace(encoding, bits=bits)
            yield replace(encoding, bits=bits, scale=DType.F32)


def choose(encoding: Encoding, supported: Callable[[Encoding], bool]) -> Encoding:
    """The narrowest supported encoding that holds ``encoding`` exactly."""
    for candidate in candidates(encoding):
        if supported(candidate):
            return candidate
    tried = ", ".join(dict.fromkeys(str(candidate) for candidate in candidates(encoding)))
    raise Unsupported(
        f"weights as {encoding} can't be used on this backend, nor widened to what it takes; tried {tried}"
    )


def widen(found: Planes, source: Encoding, target: Encoding) -> Planes:
    """Planes of ``source`` as planes of ``target``, one of its ``candidates``."""
    if target == source:
        return found
    if target not in candidates(source):
        raise ValueError(f"{source} can't become {target} without rounding")
    if isinstance(target, Dense) or isinstance(source, Dense):
        return {"values": dequantise_planes(source, found)}
    wider = dict(found)
    if isinstance(source, Lookup) and isinstance(target, Affine):
        wider["codes"] = (np.array(source.table) + _TABLE_ZERO).astype(np.uint8)[found["codes"]]
    if target.scale != source.scale:
        for leaf in ("scales", "minima"):
            if leaf in found:
                wider[leaf] = _scale(source.scale, found, leaf)
                wider.pop(f"super_{leaf}", None)
    return wider


def dequantise_planes(encoding: Encoding, found: Planes) -> Floats:
    """``[rows, columns]`` in float32: the operations, and their order, of the format's definition."""
    if isinstance(encoding, Dense):
        return _floats(encoding.dtype, found["values"])
    codes, group = found["codes"], encoding.group
    if isinstance(encoding, Lookup):
        weights = np.array(encoding.table, np.float32)[codes]
    else:
        weights = codes.astype(np.float32)
        if encoding.zero:
            weights -= np.float32(encoding.zero)
    by_group = weights.reshape(len(codes), -1, group)
    by_group *= _scale(encoding.scale, found, "scales")[:, :, None]
    if "minima" in found:
        by_group += _scale(encoding.scale, found, "minima")[:, :, None]
    return weights


def _scale(scale: DType | TwoLevel, found: Planes, leaf: str) -> Floats:
    """Scales or minima ``[rows, groups]`` in float32."""
    if not isinstance(scale, TwoLevel):
        return _floats(scale, found[leaf])
    supers = found[f"super_{leaf}"].astype(np.float32)
    factors = found[leaf].astype(np.float32)
    by_super = factors.reshape(*supers.shape, -1)
    by_super *= supers[:, :, None]
    return factors


def _floats(dtype: DType, values: NDArray[Any]) -> Floats:
    if dtype == DType.BF16:
        return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return values.astype(np.float32)
