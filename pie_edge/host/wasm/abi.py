"""wasmtime's C values, as far as host functions need them.

``wasmtime.component`` converts a list one element at a time (1 to 1.4 µs each) and asks for every type's description again at
every call. Here a type is turned once into two functions, a reader (``lift.py``) and a writer (``lower.py``), which move whole
blocks of memory.

A C value is 32 bytes: a kind, padding to 8, then a union of at most three words. Readers get the three words; writers
give the 32 bytes. How types look in Python:

    bool, numbers, string   themselves             record, tuple   a tuple of its fields, in order
    list<T>                 a list                 variant         ``(case, payload)``; payload None if it has none
    list<u8>                bytes                  result<T, E>    T, or ``Failed``
    enum                    its name               own, borrow     the host's representation, an int
    option<T>               T or None
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from ctypes import c_char_p, c_size_t, c_uint32, c_void_p
from typing import Any

from wasmtime import WasmtimeError
from wasmtime import _ffi as ffi

Reader = Callable[[int, int, int, int], Any]
"""``(store context, word, word, word) → value``"""
Writer = Callable[[int, Any], bytes]
"""``(store context, value) → 32 bytes``. Whatever they allocate belongs to wasmtime from then on."""

SIZE = 32
VALUE = struct.Struct("<B7x3Q")
FIELD = "24x3Q"
"""An entry of a record: the name (two words), then the value."""


class Failed:
    """The error case of a result. A ``PieError`` is written as ``Failed((code, message))``."""

    __slots__ = ("payload",)

    def __init__(self, payload: Any) -> None:
        self.payload = payload


class Vector(ctypes.Structure):
    """wasmtime's vectors: strings, lists and records alike."""

    _fields_ = (("size", c_size_t), ("data", c_void_p))


def _function(name: str, *arguments: Any, result: Any = None) -> Any:
    # Indexing makes a function object of our own: the package's has stricter, slower argument types.
    function = ffi.dll[name]
    function.argtypes, function.restype = arguments, result
    return function


new_bytes = _function("wasm_byte_vec_new", c_void_p, c_size_t, c_char_p)
new_list = _function("wasmtime_component_vallist_new_uninit", c_void_p, c_size_t)
new_tuple = _function("wasmtime_component_valtuple_new_uninit", c_void_p, c_size_t)
new_record = _function("wasmtime_component_valrecord_new_uninit", c_void_p, c_size_t)
new_value = _function("wasmtime_component_val_new", c_char_p, result=c_void_p)
delete_value = _function("wasmtime_component_val_delete", c_void_p)
resource_to_host = _function("wasmtime_component_resource_any_to_host", c_void_p, c_void_p, c_void_p, result=c_void_p)
resource_to_any = _function("wasmtime_component_resource_host_to_any", c_void_p, c_void_p, c_void_p, result=c_void_p)
resource_rep = _function("wasmtime_component_resource_host_rep", c_void_p, result=c_uint32)
resource_new = _function("wasmtime_component_resource_host_new", ctypes.c_bool, c_uint32, c_uint32, result=c_void_p)
resource_delete = _function("wasmtime_component_resource_host_delete", c_void_p)
poll_future = _function("wasmtime_call_future_poll", c_void_p, result=ctypes.c_bool)


def address_of(pointer: Any) -> int:
    """A pointer of the C API as a number. ``ctypes.cast`` would leave a cycle behind for the garbage collector, at each call of
    a guest's, and a collection holds everybody up."""
    return ctypes.addressof(pointer.contents) if pointer else 0


def raise_error(error: int | None) -> None:
    """Raises what a C function gave back, if it gave anything."""
    if error:
        raise WasmtimeError._from_ptr(ctypes.cast(error, ctypes.POINTER(ffi.wasmtime_error_t)))


def read(reader: Reader, context: int, address: int) -> Any:
    """The value at ``address``."""
    _, a, b, c = VALUE.unpack(ctypes.string_at(address, SIZE))
    return reader(context, a, b, c)
