"""Component values between Python and wasmtime's C structures, without a Python object per element.

``wasmtime.component`` converts a list one element at a time (1 to 1.4 µs each) and asks for every type's description again at
every call. Here a type is turned once into two closures, a reader and a writer, which move whole blocks of memory.

A C value is 32 bytes: a kind, padding to 8, then a union of at most three words. Readers get the three words; writers
give the 32 bytes. How types look in Python:

    bool, numbers, string   themselves             record            a tuple of its fields, in order
    list<T>                 a list                 variant           ``(case, payload)``; payload None if it has none
    enum                    its name               result<T, E>      T, or ``Failed``
    option<T>               T or None              own, borrow       the host's representation, an int
"""

from __future__ import annotations

import ctypes
import struct
from array import array
from collections.abc import Callable, Mapping, Sequence
from ctypes import byref, c_char_p, c_size_t, c_void_p
from typing import Any

from wasmtime import WasmtimeError
from wasmtime import _ffi as ffi
from wasmtime.component import _types as wit

from pie_edge.errors import PieError, by_code

Reader = Callable[[int, int, int, int], Any]
"""``(store context, word, word, word) → value``"""
Writer = Callable[[int, Any], bytes]
"""``(store context, value) → 32 bytes``"""

SIZE = 32
_VALUE = struct.Struct("<B7x3Q")
_WORD = struct.Struct("<Q")
_FIELD = "24x3Q"  # a record's entry is the name (two words), then the value


class _Block(ctypes.Structure):
    """wasmtime's vectors: strings, lists and records alike."""

    _fields_ = [("size", c_size_t), ("data", c_void_p)]


def _function(name: str, *arguments: Any, result: Any = None) -> Any:
    # Indexing makes a function object of our own: the package's has stricter, slower argument types.
    function = ffi.dll[name]
    function.argtypes, function.restype = arguments, result
    return function


_new_bytes = _function("wasm_byte_vec_new", c_void_p, c_size_t, c_char_p)
_new_list = _function("wasmtime_component_vallist_new_uninit", c_void_p, c_size_t)
_new_tuple = _function("wasmtime_component_valtuple_new_uninit", c_void_p, c_size_t)
_new_record = _function("wasmtime_component_valrecord_new_uninit", c_void_p, c_size_t)
_new_value = _function("wasmtime_component_val_new", c_char_p, result=c_void_p)
_delete_value = _function("wasmtime_component_val_delete", c_void_p)
_to_host = _function("wasmtime_component_resource_any_to_host", c_void_p, c_void_p, c_void_p, result=c_void_p)
_to_any = _function("wasmtime_component_resource_host_to_any", c_void_p, c_void_p, c_void_p, result=c_void_p)
_host_rep = _function("wasmtime_component_resource_host_rep", c_void_p, result=ctypes.c_uint32)
_host_new = _function(
    "wasmtime_component_resource_host_new", ctypes.c_bool, ctypes.c_uint32, ctypes.c_uint32, result=c_void_p
)
_host_delete = _function("wasmtime_component_resource_host_delete", c_void_p)
_error_type = ctypes.POINTER(ffi.wasmtime_error_t)


def delete(value: ctypes.Array[ctypes.c_char]) -> None:
    """Frees what a value owns."""
    _delete_value(ctypes.addressof(value))


def read(reader: Reader, context: int, address: int) -> Any:
    """The value at ``address``."""
    _, a, b, c = _VALUE.unpack(ctypes.string_at(address, SIZE))
    return reader(context, a, b, c)


class Codec:
    """Makes readers and writers. ``resources`` names the host's resource types by their number."""

    def __init__(self, resources: Mapping[int, Any]) -> None:
        self._resources = resources

    def reader(self, kind: Any) -> Reader:
        if type(kind) in _SCALARS:
            return _SCALARS[type(kind)].reader
        match kind:
            case wit.String() | wit.EnumType():
                return _read_string
            case wit.ListType():
                return self._list_reader(kind.element)
            case wit.RecordType():
                return _record_reader([self.reader(field) for _, field in kind.fields])
            case wit.OptionType():
                payload = self.reader(kind.payload)
                return lambda context, a, b, c: read(payload, context, a) if a else None
            case wit.VariantType():
                cases = {name: self.reader(case) if case is not None else None for name, case in kind.cases}
                return _variant_reader(cases)
            case wit.ResultType():
                return _result_reader(
                    self.reader(kind.ok) if kind.ok is not None else None,
                    self.reader(kind.err) if kind.err is not None else None,
                )
            case wit.OwnType() | wit.BorrowType():
                return _read_resource
        raise NotImplementedError(f"no reader for the WIT type {kind}")

    def writer(self, kind: Any) -> Writer:
        if type(kind) in _SCALARS:
            return _SCALARS[type(kind)].writer
        match kind:
            case wit.String():
                return _text_writer(ffi.WASMTIME_COMPONENT_STRING.value)
            case wit.EnumType():
                return _text_writer(ffi.WASMTIME_COMPONENT_ENUM.value)
            case wit.ListType():
                element = kind.element
                if type(element) in _SCALARS:
                    return _SCALARS[type(element)].list_writer
                return _list_writer(self.writer(element))
            case wit.RecordType():
                fields = kind.fields
                return _record_writer([name for name, _ in fields], [self.writer(field) for _, field in fields])
            case wit.OptionType():
                return _option_writer(self.writer(kind.payload))
            case wit.VariantType():
                return _variant_writer(
                    {name: self.writer(case) if case is not None else None for name, case in kind.cases}
                )
            case wit.ResultType():
                return _result_writer(
                    self.writer(kind.ok) if kind.ok is not None else None,
                    self.writer(kind.err) if kind.err is not None else None,
                )
            case wit.TupleType():
                return _tuple_writer([self.writer(item) for item in kind.elements])
            case wit.OwnType():
                return self._resource_writer(kind.ty)
        raise NotImplementedError(f"no writer for the WIT type {kind}")

    def _resource_writer(self, resource: Any) -> Writer:
        number = next((number for number, known in self._resources.items() if known == resource), None)

        def write_resource(context: int, rep: int) -> bytes:
            if number is None:
                raise TypeError("a resource that this host doesn't make")
            return _write_resource(context, rep, number)

        return write_resource

    def _list_reader(self, element: Any) -> Reader:
        if type(element) in _SCALARS:
            return _SCALARS[type(element)].list_reader
        item = self.reader(element)

        def read_list(context: int, size: int, data: int, _: int) -> list[Any]:
            if not size:
                return []
            block = ctypes.string_at(data, SIZE * size)
            return [item(context, a, b, c) for _, a, b, c in _VALUE.iter_unpack(block)]

        return read_list


class _Scalar:
    """Numbers and booleans: ``code`` is the ``array`` type code of the payload."""

    def __init__(self, kind: ctypes.c_uint8, code: str) -> None:
        self._code = code
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
        return _new_block(bytes(block), len(items))


class _Byte(_Scalar):
    def list_reader(self, context: int, size: int, data: int, _: int) -> Any:
        return ctypes.string_at(data, SIZE * size)[8::SIZE] if size else b""

    def list_writer(self, context: int, values: Sequence[Any]) -> bytes:
        return super().list_writer(context, memoryview(bytes(values)))


class _Bool(_Scalar):
    def reader(self, context: int, a: int, b: int, c: int) -> bool:
        return bool(a & 1)

    def list_reader(self, context: int, size: int, data: int, _: int) -> list[bool]:
        return [bool(item) for item in super().list_reader(context, size, data, _)]


class _Word32(_Scalar):
    """The commonest type, read without unpacking."""

    def reader(self, context: int, a: int, b: int, c: int) -> int:
        return a & 0xFFFF_FFFF


class _Word64(_Scalar):
    def reader(self, context: int, a: int, b: int, c: int) -> int:
        return a


_SCALARS: dict[type, _Scalar] = {
    wit.Bool: _Bool(ffi.WASMTIME_COMPONENT_BOOL, "B"),
    wit.U8: _Byte(ffi.WASMTIME_COMPONENT_U8, "B"),
    wit.S32: _Scalar(ffi.WASMTIME_COMPONENT_S32, "i"),
    wit.U32: _Word32(ffi.WASMTIME_COMPONENT_U32, "I"),
    wit.S64: _Scalar(ffi.WASMTIME_COMPONENT_S64, "q"),
    wit.U64: _Word64(ffi.WASMTIME_COMPONENT_U64, "Q"),
    wit.F32: _Scalar(ffi.WASMTIME_COMPONENT_F32, "f"),
    wit.F64: _Scalar(ffi.WASMTIME_COMPONENT_F64, "d"),
}


def _read_string(context: int, size: int, data: int, _: int) -> str:
    return ctypes.string_at(data, size).decode() if size else ""


def _read_resource(context: int, address: int, b: int, c: int) -> int:
    host = c_void_p()
    # A borrowed argument has to be consumed exactly once, or the call traps: this is that once.
    error = _to_host(context, address, byref(host))
    if error:
        raise WasmtimeError._from_ptr(ctypes.cast(error, _error_type))
    rep: int = _host_rep(host)
    _host_delete(host)
    return rep


def _record_reader(fields: Sequence[Reader]) -> Reader:
    layout = struct.Struct("<" + _FIELD * len(fields))
    indexed = [(reader, 3 * i) for i, reader in enumerate(fields)]

    def read_record(context: int, size: int, data: int, _: int) -> tuple[Any, ...]:
        words = layout.unpack(ctypes.string_at(data, layout.size))
        return tuple([reader(context, words[i], words[i + 1], words[i + 2]) for reader, i in indexed])

    return read_record


def _variant_reader(cases: Mapping[str, Reader | None]) -> Reader:
    named = {name.encode(): (name, reader) for name, reader in cases.items()}

    def read_variant(context: int, size: int, data: int, payload: int) -> tuple[str, Any]:
        name, reader = named[ctypes.string_at(data, size)]
        return name, read(reader, context, payload) if reader else None

    return read_variant


def _result_reader(ok: Reader | None, err: Reader | None) -> Reader:
    def read_result(context: int, is_ok: int, payload: int, _: int) -> Any:
        chosen = ok if is_ok & 1 else err
        value = read(chosen, context, payload) if chosen and payload else None
        return value if is_ok & 1 else Failed(value)

    return read_result


class Failed:
    """The error case of a result. A ``PieError`` is written as ``Failed((code, message))``."""

    __slots__ = ("payload",)

    def __init__(self, payload: Any) -> None:
        self.payload = payload


_vector = _Block()
_vector_at = ctypes.addressof(_vector)


def _new_block(block: bytes, count: int) -> bytes:
    """A list value of ``count`` elements that are already in C form."""
    _new_list(_vector_at, count)
    data = _vector.data or 0
    if count:
        ctypes.memmove(data, block, len(block))
    return _VALUE.pack(ffi.WASMTIME_COMPONENT_LIST.value, count, data, 0)


def _new_name(name: bytes) -> tuple[int, int]:
    _new_bytes(_vector_at, len(name), name)
    return len(name), _vector.data or 0


def _text_writer(kind: int) -> Writer:
    def write_text(context: int, value: str) -> bytes:
        # A lone surrogate has no UTF-8 form; it arrives as U+FFFD rather than as a trap.
        size, data = _new_name(value.encode("utf-8", "replace"))
        return _VALUE.pack(kind, size, data, 0)

    return write_text


def _list_writer(item: Writer) -> Writer:
    return lambda context, values: _new_block(b"".join([item(context, value) for value in values]), len(values))


def _record_writer(names: Sequence[str], fields: Sequence[Writer]) -> Writer:
    encoded = [(name.encode(), writer) for name, writer in zip(names, fields, strict=True)]
    header = struct.Struct("<2Q")

    def write_record(context: int, value: Sequence[Any]) -> bytes:
        parts = []
        for (name, writer), field in zip(encoded, value, strict=True):
            written = writer(context, field)
            parts += [header.pack(*_new_name(name)), written]
        _new_record(_vector_at, len(encoded))
        data = _vector.data or 0
        block = b"".join(parts)
        ctypes.memmove(data, block, len(block))
        return _VALUE.pack(ffi.WASMTIME_COMPONENT_RECORD.value, len(encoded), data, 0)

    return write_record


def _tuple_writer(items: Sequence[Writer]) -> Writer:
    kind = ffi.WASMTIME_COMPONENT_TUPLE.value

    def write_tuple(context: int, value: Sequence[Any]) -> bytes:
        block = b"".join([writer(context, item) for writer, item in zip(items, value, strict=True)])
        _new_tuple(_vector_at, len(items))
        data = _vector.data or 0
        ctypes.memmove(data, block, len(block))
        return _VALUE.pack(kind, len(items), data, 0)

    return write_tuple


def _option_writer(payload: Writer) -> Writer:
    kind = ffi.WASMTIME_COMPONENT_OPTION.value
    return lambda context, value: _VALUE.pack(kind, 0 if value is None else _new_value(payload(context, value)), 0, 0)


def _variant_writer(cases: Mapping[str, Writer | None]) -> Writer:
    kind = ffi.WASMTIME_COMPONENT_VARIANT.value
    named = {name: (name.encode(), writer) for name, writer in cases.items()}

    def write_variant(context: int, value: tuple[str, Any]) -> bytes:
        name, writer = named[value[0]]
        payload = _new_value(writer(context, value[1])) if writer else 0
        return _VALUE.pack(kind, *_new_name(name), payload)

    return write_variant


def _result_writer(ok: Writer | None, err: Writer | None) -> Writer:
    kind = ffi.WASMTIME_COMPONENT_RESULT.value

    def write_result(context: int, value: Any) -> bytes:
        if isinstance(value, PieError):
            value = Failed((value.code, value.message))
        if isinstance(value, Failed):
            return _VALUE.pack(kind, 0, _new_value(err(context, value.payload)) if err else 0, 0)
        return _VALUE.pack(kind, 1, _new_value(ok(context, value)) if ok else 0, 0)

    return write_result


def _write_resource(context: int, rep: int, number: int) -> bytes:
    host = _host_new(True, rep, number)
    handle = c_void_p()
    error = _to_any(context, host, byref(handle))
    _host_delete(host)
    if error:
        raise WasmtimeError._from_ptr(ctypes.cast(error, _error_type))
    return _VALUE.pack(ffi.WASMTIME_COMPONENT_RESOURCE.value, handle.value or 0, 0, 0)


def error_from(record: tuple[str, str]) -> PieError:
    """The exception that an ``error`` record stands for."""
    code, message = record
    return by_code(code)(message)
