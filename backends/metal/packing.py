"""Codes of a quantised matrix packed as MLX packs them: a row by itself, one code's bits after the other's, the lowest first."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK = 32
"""Columns that are whole words, whatever the bits of a code."""

Words = NDArray[np.uint32]


def words_of(columns: int, bits: int) -> int:
    """Words of a row; columns are padded to whole blocks with zeros."""
    return -(-columns // BLOCK) * bits


def pack(codes: NDArray[np.uint8], bits: int) -> Words:
    """[rows, columns], a byte each → [rows, words]."""
    missing = -codes.shape[1] % BLOCK
    if missing:
        codes = np.pad(codes, ((0, 0), (0, missing)))
    if bits == 8:
        return np.ascontiguousarray(codes).view("<u4")
    if bits == 4:
        return np.ascontiguousarray(codes[:, 0::2] | (codes[:, 1::2] << np.uint8(4))).view("<u4")
    by_block = codes.reshape(len(codes), -1, BLOCK)
    words = np.zeros((*by_block.shape[:2], bits), np.uint64)
    for place in range(BLOCK):
        word, shift = divmod(place * bits, 32)
        placed = by_block[:, :, place].astype(np.uint64) << np.uint64(shift)
        words[:, :, word] |= placed & np.uint64(0xFFFFFFFF)
        if shift + bits > 32:
            words[:, :, word + 1] |= placed >> np.uint64(32)
    return words.astype("<u4").reshape(len(codes), -1)


def floats(values: NDArray[Any]) -> NDArray[np.float32]:
    """Numbers as float32; bfloat16 comes as its bits."""
    if values.dtype == np.uint16:
        return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return np.ascontiguousarray(values, np.float32)
