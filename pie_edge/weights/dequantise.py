"""Weights of a file in float32: its native planes, multiplied out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pie_edge.weights.recipes import native_encoding
from pie_edge.weights.repack import repack, unpack
from pie_edge.weights.tensor import Tensor
from pie_edge.weights.widen import dequantise_planes


def dequantise(tensor: Tensor, rows: slice = slice(None)) -> NDArray[np.float32]:
    """``tensor``, or a range of its rows (leading axes taken as one), as ``[rows, columns]``."""
    return dequantise_planes(native_encoding(tensor.encoding), repack(tensor, rows=rows))


def dequantise_blocks(name: str, data: memoryview | bytes, rows: int, columns: int) -> NDArray[np.float32]:
    """The same for blocks in memory, encoded as ``name``."""
    return dequantise_planes(native_encoding(name), unpack(name, data, rows, columns))
