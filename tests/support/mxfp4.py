"""MXFP4 as its specification has it (OCP Microscaling Formats 1.0): E2M1 values in groups of 32, and an E8M0 scale for each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]

VALUES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
_BIAS = 127


def quantise(values: Floats) -> tuple[Bytes, Bytes]:
    """Codes like ``values`` and scales [..., columns/32]: the nearest values, the largest of a group below 6 · 2^scale."""
    groups = values.reshape(*values.shape[:-1], -1, 32)
    largest = np.abs(groups).max(axis=-1)
    scales = np.ceil(np.log2(np.maximum(largest, 2.0**-100) / 6)).astype(int)
    scaled = groups / np.exp2(scales)[..., None]
    codes = np.abs(scaled[..., None] - VALUES).argmin(axis=-1).astype(np.uint8)
    return codes.reshape(values.shape), (scales + _BIAS).astype(np.uint8)


def dequantise(codes: Bytes, scales: Bytes) -> Floats:
    factors = np.exp2(scales.astype(np.float64) - _BIAS).astype(np.float32)
    return VALUES[codes] * np.repeat(factors, 32, axis=-1)


def blocks(codes: Bytes) -> Bytes:
    """[..., columns/32, 16], as safetensors have them: neighbours in a byte, the first in the low bits."""
    groups = codes.reshape(*codes.shape[:-1], -1, 16, 2)
    return groups[..., 0] | (groups[..., 1] << np.uint8(4))


def gguf_rows(codes: Bytes, scales: Bytes) -> Bytes:
    """[..., bytes], as a GGUF has them: of each group the scale, then 16 bytes with columns i and 16 + i."""
    groups = codes.reshape(*codes.shape[:-1], -1, 2, 16)
    packed = groups[..., 0, :] | (groups[..., 1, :] << np.uint8(4))
    return np.concatenate((scales[..., None], packed), axis=-1).reshape(*codes.shape[:-1], -1)
