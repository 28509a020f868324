"""Matrices that a safetensors file keeps as several tensors: codes packed into words, scales, and minima or zero points.

    MLX    X.weight  u32 [rows, columns·bits/32], X.scales and X.biases [rows, groups]        w = scale · code + bias
    GPTQ   X.qweight i32 [columns·bits/32, rows], X.qzeros i32 [groups, rows·bits/32],
           X.scales  f16 [groups, rows], X.g_idx i32 [columns]                                w = scale · (code − zero)
    AWQ    X.qweight i32 [columns, rows/8], X.qzeros i32 [groups, rows/8],
           X.scales  f16 [groups, rows]                                                       w = scale · (code − zero)

Codes begin at a word's lowest bits; AWQ's eight are in the order 0 2 4 6 1 3 5 7. GPTQ's first format stores zero points less
one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pie_edge.errors import BadCheckpoint, Unsupported
from pie_edge.program.encodings import Affine, DType
from pie_edge.weights.fp8 import SCALE, BlockScaledTensor, block_scaled
from pie_edge.weights.mxfp4 import Mxfp4Tensor, mxfp4
from pie_edge.weights.repack import repack
from pie_edge.weights.tensor import Tensor
from pie_edge.weights.widen import Planes

Array = NDArray[Any]
_WORD = 32
_BITS = (2, 4, 8)
_AWQ_PLACES = (0, 4, 1, 5, 2, 6, 3, 7)
"""Where in a word AWQ keeps each of eight codes."""
_SCALES = {"F16": DType.F16, "BF16": DType.BF16, "F32": DType.F32}


@dataclass(frozen=True, slots=True)
class GroupedTensor:
    """A matrix ``[rows, columns]`` made of several tensors; to its readers much like one ``Tensor``. MLX has experts' matrices
    in one: ``[experts, rows, columns]``."""

    name: str
    shape: tuple[int, ...]
    method: str
    """``MLX``, ``GPTQ`` or ``AWQ``."""
    native: Affine
    pieces: Mapping[str, Tensor]
    """By the ends of their names: ``weight``, ``scales``, …"""
    lowered: int = 0
    """What stored zero points lack."""

    @property
    def encoding(self) -> str:
        return f"{self.method}-{self.native.bits}bit"

    @property
    def nbytes(self) -> int:
        return sum(piece.nbytes for piece in self.pieces.values())

    @property
    def parts(self) -> tuple[Tensor, ...]:
        return tuple(self.pieces.values())

    def packed(self, first: int, count: int) -> Planes | None:
        """The planes of ``count`` rows from ``first`` with codes in words as MLX has them; None for other methods."""
        if self.method != "MLX":
            return None
        rows = slice(first, first + count)
        values = {name: repack(self.pieces[stored], rows=rows)["values"] for name, stored in _MLX_PLANES}
        return {"codes": _words(self.pieces["weight"], rows), **values}

    def planes(self, first: int, count: int) -> Planes:
        """The planes of ``count`` rows from ``first``, in the native encoding."""
        rows = slice(first, first + count)
        if (found := self.packed(first, count)) is not None:
            return {**found, "codes": _unpack(found["codes"], self.native.bits)}
        codes, zeros = _awq(self, rows) if self.method == "AWQ" else _gptq(self, rows)
        scales = np.ascontiguousarray(repack(self.pieces["scales"])["values"][:, rows].T)
        if self.native.zero is None:
            wide = scales.astype(np.float32)
            return {"codes": codes, "scales": wide, "minima": -wide * zeros.astype(np.float32)}
        if (zeros != self.native.zero).any():
            raise BadCheckpoint(
                f"{self.pieces['qzeros'].span.source.path}: {self.name} is said to be symmetric, and its zero points aren't all "
                f"{self.native.zero}; fetch the file again"
            )
        return {"codes": codes, "scales": scales}


_MLX_PLANES = (("scales", "scales"), ("minima", "biases"))


def _words(tensor: Tensor, rows: slice = slice(None)) -> Array:
    # Matrices of experts lie one below another.
    shape = tensor.shape if len(tensor.shape) < 3 else (-1, tensor.shape[-1])
    return np.frombuffer(tensor.span.view(), "<u4").reshape(shape)[rows]


def _unpack(words: Array, bits: int) -> Array:
    """[rows, words] → [rows, codes], a byte each."""
    shifts = np.arange(0, _WORD, bits, dtype=np.uint32)
    codes = (words[:, :, None] >> shifts) & np.uint32((1 << bits) - 1)
    return codes.astype(np.uint8).reshape(len(words), -1)


def _gptq(tensor: GroupedTensor, rows: slice) -> tuple[Array, Array]:
    """Codes ``[rows, columns]`` and zero points ``[rows, groups]``."""
    bits, group, columns = tensor.native.bits, tensor.native.group, tensor.shape[1]
    order = tensor.pieces.get("g_idx")
    if order is not None and (_words(order) != np.arange(columns) // group).any():
        raise Unsupported(
            f"{order.span.source.path}: {tensor.name} was quantised with its columns reordered (desc_act), which isn't known to "
            "this version; take a checkpoint without, or a GGUF"
        )
    words = np.ascontiguousarray(_words(tensor.pieces["qweight"])[:, rows].T)
    zeros = _unpack(_words(tensor.pieces["qzeros"]), bits)[:, rows].T
    # The stored zero of a code of all ones wraps around.
    return _unpack(words, bits), (zeros + np.uint8(tensor.lowered)) & np.uint8((1 << bits) - 1)


def _awq(tensor: GroupedTensor, rows: slice) -> tuple[Array, Array]:
    first, last = rows.start // 8, -(-rows.stop // 8)
    inside = slice(rows.start - 8 * first, rows.stop - 8 * first)

    def unpacked(words: Array) -> Array:
        """[n, words] → [rows, n]"""
        codes = _unpack(np.ascontiguousarray(words[:, first:last]), 4).reshape(len(words), -1, 8)
        return codes[:, :, _AWQ_PLACES].reshape(len(words), -1)[:, inside].T

    codes, zeros = (unpacked(_words(tensor.pieces[name])) for name in ("qweight", "qzeros"))
    return np.ascontiguousarray(codes), zeros


MadeTensor = GroupedTensor | BlockScaledTensor | Mxfp4Tensor
"""A matrix made of several tensors."""
AnyTensor = Tensor | MadeTensor


def gather(tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, AnyTensor]:
    """The tensors of a checkpoint with those that make up one matrix as one, under its usual name ``X.weight``.

    ``config`` is config.json, whose ``quantization`` (MLX) or ``quantization_config`` says what they are. What neither names
    stays as it is. Raises BadCheckpoint for pieces that are missing or don't fit, Unsupported for a variant that isn't known.
    """
    mlx, other = config.get("quantization"), config.get("quantization_config")
    if isinstance(mlx, Mapping):
        return _gathered(tensors, ".scales", lambda stem: _mlx(tensors, stem, mlx))
    method = other.get("quant_method") if isinstance(other, Mapping) else None
    if isinstance(other, Mapping) and method in ("gptq", "awq"):
        return _gathered(tensors, ".qweight", lambda stem: _by_columns(tensors, stem, method.upper(), other))
    if method == "mxfp4":
        return mxfp4(tensors)
    if isinstance(other, Mapping) and method == "fp8":
        return _gathered(tensors, SCALE, lambda stem: block_scaled(tensors, stem, other))
    return dict(tensors)


def _gathered(tensors: Mapping[str, Tensor], mark: str, read: Callable[[str], MadeTensor]) -> dict[str, AnyTensor]:
    found: dict[str, AnyTensor] = dict(tensors)
    for stem in [name.removesuffix(mark) for name in tensors if name.endswith(mark)]:
        matrix = read(stem)
        for piece in matrix.parts:
            del found[piece.name]
        found[matrix.name] = matrix
    return found


def _pieces(
    tensors: Mapping[str, Tensor], stem: str, names: tuple[str, ...], axes: tuple[int, ...] = (2,)
) -> dict[str, Tensor]:
    for name in names:
        piece = tensors.get(f"{stem}.{name}")
        if piece is None or len(piece.shape) not in ((1,) if name == "g_idx" else axes):
            some = next(tensor for held, tensor in tensors.items() if held.startswith(f"{stem}."))
            what = "is missing" if piece is None else f"has shape {list(piece.shape)}"
            raise BadCheckpoint(f"{some.span.source.path}: tensor {stem}.{name} {what}; fetch the file again")
    return {name: tensors[f"{stem}.{name}"] for name in names}


def _whole(given: Mapping[str, Any], key: str, stem: str) -> int:
    value = given.get(key)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise BadCheckpoint(f"config.json says {key} = {value!r} for {stem}; a whole number is required")


def _mlx(tensors: Mapping[str, Tensor], stem: str, config: Mapping[str, Any]) -> GroupedTensor:
    own = config.get(stem)
    given = {**config, **own} if isinstance(own, Mapping) else config
    if given.get("mode", "affine") != "affine":
        raise Unsupported(f"{stem} is quantised by MLX in the mode {given['mode']!r}; affine is known to this version")
    pieces = _pieces(tensors, stem, ("weight", "scales", "biases"), (2, 3))
    bits, group = _whole(given, "bits", stem), _whole(given, "group_size", stem)
    *rows, groups = pieces["scales"].shape
    columns = groups * group
    shapes = {"weight": (*rows, columns * bits // _WORD), "biases": pieces["scales"].shape}
    native = _affine(pieces, bits, group, False, stem)
    return _checked(GroupedTensor(f"{stem}.weight", (*rows, columns), "MLX", native, pieces), shapes)


def _by_columns(tensors: Mapping[str, Tensor], stem: str, method: str, config: Mapping[str, Any]) -> GroupedTensor:
    """GPTQ and AWQ: scales lie by group, then by row."""
    extra = ("g_idx",) if f"{stem}.g_idx" in tensors else ()
    pieces = _pieces(tensors, stem, ("qweight", "qzeros", "scales", *extra))
    bits, asked = _whole(config, "bits", stem), _whole(config, "group_size", stem)
    rows = pieces["scales"].shape[1]
    columns = pieces["qweight"].shape[0] * (_WORD // bits if method == "GPTQ" and bits in _BITS else 1)
    group = columns if asked == -1 else asked
    symmetric = method == "GPTQ" and config.get("sym") is True
    native = _affine(pieces, bits, group, symmetric, stem)
    if method == "AWQ" and (bits != 4 or config.get("version", "gemm") != "gemm"):
        raise Unsupported(f"{stem} is AWQ of {bits} bits, version {config.get('version')!r}; 4 bits and gemm are known")
    packed = (columns * bits // _WORD, rows) if method == "GPTQ" else (columns, rows * bits // _WORD)
    shapes = {"qweight": packed, "qzeros": (columns // group, rows * bits // _WORD), "scales": (columns // group, rows)}
    lowered = int(method == "GPTQ" and config.get("checkpoint_format") != "gptq_v2")
    return _checked(GroupedTensor(f"{stem}.weight", (rows, columns), method, native, pieces, lowered), shapes)


def _affine(pieces: Mapping[str, Tensor], bits: int, group: int, symmetric: bool, stem: str) -> Affine:
    held = pieces["scales"].encoding
    if bits not in _BITS or group <= 0 or held not in _SCALES:
        raise Unsupported(
            f"{stem} has {bits} bits in groups of {group} with {held} scales; bits of {_BITS} and floats are known"
        )
    if symmetric:
        return Affine(bits, group, _SCALES[held], 1 << bits - 1)
    # A minimum that is scale · zero is too long for the type of the scale.
    return Affine(bits, group, _SCALES[held] if "biases" in pieces else DType.F32, None)


def _checked(matrix: GroupedTensor, shapes: Mapping[str, tuple[int, ...]]) -> GroupedTensor:
    for name, shape in shapes.items():
        piece = matrix.pieces[name]
        words = name in ("weight", "qweight", "qzeros")
        if (
            piece.shape != shape
            or matrix.shape[-1] % matrix.native.group
            or (piece.encoding in ("I32", "U32")) != words
        ):
            raise BadCheckpoint(
                f"{piece.span.source.path}: tensor {piece.name} is {piece.encoding} {list(piece.shape)}; for {matrix.native} it "
                f"must be {list(shape)}{' of 32-bit words' if words else ''}"
            )
    return matrix
