"""Device memory: arrays that hold states, and what all of them may take together."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import TypeAlias

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from pie_edge.backends.shared import region as shared
from pie_edge.errors import OutOfMemory
from pie_edge.program.encodings import DType

DTYPES = {
    DType.F32: mx.float32,
    DType.F16: mx.float16,
    DType.BF16: mx.bfloat16,
    DType.U32: mx.uint32,
    DType.I32: mx.int32,
    DType.U8: mx.uint8,
    DType.I8: mx.int8,
}


class Cell:
    """What holds a state's array. An op that writes a state gives a new array, which MLX makes of the old one's memory where
    nobody else has it: so whoever is about to write *takes* the array, and puts in its place what the op gave."""

    __slots__ = ("__weakref__", "_array", "nbytes")

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self._array: mx.array | None = mx.zeros((nbytes,), mx.uint8)
        mx.eval(self._array)

    def shaped(self, dtype: DType, shape: tuple[int, ...]) -> mx.array:
        """The state as an array of this type and shape, from now on."""
        array = self._array
        assert array is not None
        if array.dtype != DTYPES[dtype] or array.shape != shape:
            array = mx.view(mx.view(array.reshape(-1), mx.uint8), DTYPES[dtype]).reshape(shape)
            self._array = array
        return array

    def take(self, dtype: DType, shape: tuple[int, ...]) -> mx.array:
        array = self.shaped(dtype, shape)
        self._array = None
        return array

    def put(self, array: mx.array) -> None:
        self._array = array

    def drop(self) -> None:
        """Nobody will ask for it again."""
        self._array = None

    def bytes(self) -> NDArray[np.uint8]:
        """Its memory itself. Only while nothing that reads or writes it is on its way, and not to be kept."""
        assert self._array is not None
        return host(self._array).reshape(-1).view(np.uint8)


Region: TypeAlias = shared.Region[Cell]


def host(array: mx.array) -> NDArray[np.generic]:
    """An array's memory as NumPy sees it, nothing copied. Waits until it is computed."""
    mx.eval(array)
    return np.array(array, copy=False)


@dataclass(eq=False)
class Ledger:
    """What is in use of ``limit`` bytes: checked before anything is allocated."""

    name: str
    limit: int
    largest: int
    remedy: str
    """What gives more where ``limit`` is too little."""
    used: int = 0

    def __post_init__(self) -> None:
        self._lock = Lock()

    def take(self, nbytes: int, what: str) -> None:
        """Raises OutOfMemory: what was asked, what is free."""
        with self._lock:
            if self.used + nbytes > self.limit or nbytes > self.largest:
                raise OutOfMemory(
                    f"{what} needs {nbytes / 2**20:.1f} MiB of {self.name}; {(self.limit - self.used) / 2**20:.1f} of "
                    f"{self.limit / 2**20:.1f} MiB are free, and no buffer has more than {self.largest / 2**20:.0f}. Lower "
                    f"`kv_memory`, {self.remedy}, or take a smaller model"
                )
            self.used += nbytes

    def give_back(self, nbytes: int) -> None:
        with self._lock:
            self.used -= nbytes
