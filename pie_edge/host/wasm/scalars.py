"""Numbers and booleans, alone and in lists."""

from __future__ import annotations

import ctypes
import struct
from array import array
from collections.abc import Sequence
from typing import Any

from wasmtime import _ffi as ffi
from wasmtime.component import _types as wit

from pie_edge.host.wasm import abi
from pie_edge.host.wasm.abi import SIZE

_WORD = struct.Struct("<Q")


class Scalar:
    """Numbers and booleans: ``code`` is the ``array`` type code of the payload."""

    def __init__(self, kind: ctypes.c_uint8, code: str) -> None:
        self._code: Any = code
        self._width = struct.calcsize(code)
        self._one = struct.Struct(f"<B7x{code}{24 - self._width}x")
        self._payload = struct.Struct(f"<{code}")
        self._kind = kind.value
        self._blank = self._one.pack(self._kind, 0)

    def reader(self, context: int, a: int, b: int, c: int) -> Any:
        return self._payload.unpack_from(_WORD.pack(a))[0]

    def writer(self, context: int, value: Any) -> bytes:
        return self._one.pack(self._kind, value)

    def list_reader(self, context: int, size: int, data: int, _: int) -> Any:
        if not size:
            return []
        return (
            memoryview(ctypes.string_at(data, SIZE * size))
            .cast(self._code)[8 // self._width :: SIZE // self._width]
            .tolist()
        )

    def list_writer(self, context: int, values: Sequence[Any]) -> bytes:
        items = values if isinstance(values, (array, memoryview)) else array(self._code, values)
        block = bytearray(self._blank * len(items))
        if len(items):
            memoryview(block).cast(self._code)[8 // self._width :: SIZE // self._width] = memoryview(items)
        return new_list(bytes(block), len(items))


class _Byte(Scalar):
    def list_reader(self, context: int, size: int, data: int, _: int) -> Any:
        return ctypes.string_at(data, SIZE * size)[8::SIZE] if size else b""

    def list_writer(self, context: int, values: Sequence[Any]) -> bytes:
        return super().list_writer(context, memoryview(bytes(values)))


class _Bool(Scalar):
    def reader(self, context: int, a: int, b: int, c: int) -> bool:
        return bool(a & 1)

    def list_reader(self, context: int, size: int, data: int, _: int) -> list[bool]:
        return [bool(item) for item in super().list_reader(context, size, data, _)]


class _Word32(Scalar):
    """The commonest type, read without unpacking."""

    def reader(self, context: int, a: int, b: int, c: int) -> int:
        return a & 0xFFFF_FFFF


class _Word64(Scalar):
    def reader(self, context: int, a: int, b: int, c: int) -> int:
        return a


SCALARS: dict[type, Scalar] = {
    wit.Bool: _Bool(ffi.WASMTIME_COMPONENT_BOOL, "B"),
    wit.U8: _Byte(ffi.WASMTIME_COMPONENT_U8, "B"),
    wit.S32: Scalar(ffi.WASMTIME_COMPONENT_S32, "i"),
    wit.U32: _Word32(ffi.WASMTIME_COMPONENT_U32, "I"),
    wit.S64: Scalar(ffi.WASMTIME_COMPONENT_S64, "q"),
    wit.U64: _Word64(ffi.WASMTIME_COMPONENT_U64, "Q"),
    wit.F32: Scalar(ffi.WASMTIME_COMPONENT_F32, "f"),
    wit.F64: Scalar(ffi.WASMTIME_COMPONENT_F64, "d"),
}


_vector = abi.Vector()
_vector_at = ctypes.addressof(_vector)


def new_list(block: bytes, count: int) -> bytes:
    """A list of ``count`` elements that are in C form already."""
    abi.new_list(_vector_at, count)
    data = _vector.data or 0
    if count:
        ctypes.memmove(data, block, len(block))
    return abi.VALUE.pack(ffi.WASMTIME_COMPONENT_LIST.value, count, data, 0)
