"""Run the recipes with NumPy: a file's blocks → the planes of ``program/encodings.py``.

Planes are C-contiguous arrays of ``[rows, …]``; bf16 is held as its bits in uint16, since NumPy has no bf16.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from pie_edge.errors import BadCheckpoint
from pie_edge.program.encodings import Encoding, planes
from pie_edge.weights.recipes import DENSE, RECIPES, Exponent, Field, Half, Integers, Rule, native_encoding
from pie_edge.weights.tensor import Tensor
from pie_edge.weights.widen import NUMPY, Planes, widen

Bytes = NDArray[np.uint8]

_CHUNK = 1 << 18
"""Weights taken apart at once: what is read and written stays in the second-level cache."""


def repack(tensor: Tensor, encoding: Encoding | None = None, rows: slice = slice(None)) -> Planes:
    """The planes of ``tensor`` (its leading axes taken as one), or of a range of its rows, by name.

    ``encoding`` is what ``widen.choose`` gave for the tensor's native encoding, which is the default. Dense planes of
    the native encoding are views of the file; all others are new arrays.
    """
    native = native_encoding(tensor.encoding)
    start, stop, step = rows.indices(tensor.rows)
    if step != 1:
        raise ValueError(f"rows {rows} of {tensor.name}: only ranges with a step of 1 can be repacked")
    count = max(0, stop - start)
    row_bytes = tensor.nbytes // max(1, tensor.rows)
    data = tensor.span.part(start * row_bytes, count * row_bytes).view()
    found = unpack(tensor.encoding, data, count, tensor.columns)
    return found if encoding is None else widen(found, native, encoding)


def unpack(name: str, data: memoryview | bytes, rows: int, columns: int) -> Planes:
    """The native planes of ``rows`` rows whose blocks, encoded as ``name``, are ``data``."""
    encoding = native_encoding(name)
    if name in DENSE:
        dtype = NUMPY[DENSE[name].dtype]
        _check_size(name, data, rows, columns, rows * columns * dtype.itemsize)
        return {"values": np.frombuffer(data, dtype).reshape(rows, columns)}
    recipe = RECIPES[name]
    weights, nbytes = recipe.block.weights, recipe.block.nbytes
    if columns % weights:
        raise BadCheckpoint(f"{name} weights come in blocks of {weights} in a row; a row of {columns} can't be")
    _check_size(name, data, rows, columns, rows * columns // weights * nbytes)
    found = {plane.name: np.empty(plane.shape, NUMPY[plane.dtype]) for plane in planes(encoding, rows, columns)}
    blocks = np.frombuffer(data, np.uint8).reshape(-1, nbytes)
    step = _CHUNK // weights
    for plane, rule in recipe.rules.items():
        by_block = found[plane].reshape(len(blocks), found[plane].shape[1] // (columns // weights))
        for start in range(0, len(blocks), step):
            _run(rule, blocks[start : start + step], by_block[start : start + step])
    return found


def _check_size(name: str, data: memoryview | bytes, rows: int, columns: int, nbytes: int) -> None:
    if len(data) != nbytes:
        raise BadCheckpoint(f"{rows} × {columns} weights encoded as {name} take {nbytes} bytes; {len(data)} are there")


def _run(rule: Rule, blocks: Bytes, out: NDArray[np.generic]) -> None:
    """Apply ``rule`` to blocks ``[n, nbytes]``; ``out`` is ``[n, elements]``."""
    if isinstance(rule, Half):
        out[:, 0] = blocks[:, rule.offset : rule.offset + 2].view("<f2")[:, 0]
    elif isinstance(rule, Exponent):
        out[:, 0] = HALVED_E8M0[blocks[:, rule.offset]]
    else:
        _integers(rule, blocks, out.view(np.uint8))


def _integers(rule: Integers, blocks: Bytes, out: Bytes) -> None:
    start = 0
    for first, *others in rule.segments:
        part = out[:, start : start + first.count]
        _gather(first, blocks, part)
        for field in others:
            more = np.empty((len(blocks), field.count), np.uint8)
            _gather(field, blocks, more)
            part |= more
        start += first.count
    if rule.sign < 0:
        np.negative(out, out=out)
    if rule.add:
        out += np.uint8(rule.add % 256)


def _gather(field: Field, blocks: Bytes, out: Bytes) -> None:
    """Extract a field of all blocks into ``out`` ``[n, field.count]``.

    Words of eight bytes are shifted and masked at once, and runs of bytes are moved as single items: both are ten times
    as fast as the same on bytes.
    """
    n = len(blocks)
    source = _contiguous(blocks, field.offset, field.nbytes)
    if field.width == 1 and field.axes[-1].shift == 1:
        out[:] = np.unpackbits(source[: n * field.nbytes].reshape(n, -1), axis=1, bitorder="little")
        out <<= field.into
        return
    run = 1 if field.axes[-1].shift else field.axes[-1].count
    outer = field.axes if run == 1 else field.axes[:-1]
    item = np.dtype((np.void, run))
    runs_out = out.view(item).reshape(n, *(axis.count for axis in outer))
    byte_shape = (n, *(axis.count for axis in outer if not axis.shift))
    mask = np.uint64(((1 << field.width) - 1) * 0x0101010101010101)
    words = source.view(np.uint64)
    for digits in itertools.product(*(range(axis.count if axis.shift else 1) for axis in outer)):
        shift = field.shift + sum(digit * axis.shift for digit, axis in zip(digits, outer, strict=True))
        value = words >> np.uint64(shift)
        value &= mask
        if field.into:
            value <<= np.uint64(field.into)
        where = (digit if axis.shift else slice(None) for digit, axis in zip(digits, outer, strict=True))
        runs_out[(slice(None), *where)] = value.view(np.uint8)[: n * field.nbytes].view(item).reshape(byte_shape)


def _contiguous(blocks: Bytes, offset: int, nbytes: int) -> Bytes:
    """Bytes ``offset … offset + nbytes`` of all blocks, one after the other, padded to whole words."""
    padded = np.empty(-(-len(blocks) * nbytes // 8) * 8, np.uint8)
    item = np.dtype((np.void, nbytes))
    padded[: len(blocks) * nbytes].view(item)[:] = blocks[:, offset : offset + nbytes].view(item)[:, 0]
    return padded


def _halved_e8m0() -> NDArray[np.uint16]:
    """``2 ** (byte − 128)`` as bf16 bits: exponents from byte 2 on are normal, 0 and 1 subnormal."""
    normal = np.maximum(np.arange(256) - 1, 0).astype(np.uint16) << np.uint16(7)
    normal[:2] = 0x0020, 0x0040
    return normal


HALVED_E8M0 = _halved_e8m0()
"""``2 ** (byte − 128)`` by the byte, as bf16's bits."""
