"""Tensors as Hopper's copying engine knows them: the driver's 128 bytes for one."""

from __future__ import annotations

import ctypes
from ctypes import c_uint32, c_uint64

from pie_edge.backends.cuda.device import Gpu
from pie_edge.backends.cuda.launch import Tensor

_NBYTES, _ALIGNMENT = 128, 64
_HALVES, _SWIZZLE_128, _PROMOTE_128 = 6, 3, 2
"""The driver's names: of the type, of the swizzle, and of how much the second-level cache reads at once."""


def described(gpu: Gpu, tensor: Tensor) -> bytes:
    """Raises BackendError."""
    room = ctypes.create_string_buffer(_NBYTES + _ALIGNMENT)
    place = -(-ctypes.addressof(room) // _ALIGNMENT) * _ALIGNMENT
    width, rows, _ = tensor.extents
    gpu.call(
        "describe a tensor",
        "cuTensorMapEncodeTiled",
        place,
        _HALVES,
        len(tensor.extents),
        tensor.region.buffer.address + tensor.region.offset,
        (c_uint64 * 3)(*tensor.extents),
        (c_uint64 * 2)(2 * width, 2 * width * rows),
        (c_uint32 * 3)(*tensor.box),
        (c_uint32 * 3)(1, 1, 1),
        *(0, _SWIZZLE_128, _PROMOTE_128, 0),
    )
    return ctypes.string_at(place, _NBYTES)
