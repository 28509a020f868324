"""From Python's values to wasmtime's.

What a writer is given comes from this host and has the right type; a wrong one raises, and leaks what was written before it.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping, Sequence
from ctypes import byref, c_void_p
from typing import Any

from wasmtime import _ffi as ffi
from wasmtime.component import ResourceType
from wasmtime.component import _types as wit

from pie_edge.errors import PieError
from pie_edge.host.wasm import abi
from pie_edge.host.wasm.abi import VALUE, Failed, Writer, new_value
from pie_edge.host.wasm.scalars import SCALARS, new_list

Resources = Mapping[int, ResourceType]
"""The host's resource types by their numbers."""

_NAME = struct.Struct("<2Q")
_vector = abi.Vector()
_vector_at = ctypes.addressof(_vector)


def writer(kind: Any, resources: Resources) -> Writer:
    """How values of a WIT type are written."""
    if type(kind) in SCALARS:
        return SCALARS[type(kind)].writer

    def maybe(inner: Any) -> Writer | None:
        return None if inner is None else writer(inner, resources)

    match kind:
        case wit.String():
            return _text_writer(ffi.WASMTIME_COMPONENT_STRING.value)
        case wit.EnumType():
            return _text_writer(ffi.WASMTIME_COMPONENT_ENUM.value)
        case wit.ListType():
            element = kind.element
            scalar = SCALARS.get(type(element))
            return scalar.list_writer if scalar else _list_writer(writer(element, resources))
        case wit.RecordType():
            return _record_writer([(name.encode(), writer(field, resources)) for name, field in kind.fields])
        case wit.TupleType():
            return _tuple_writer([writer(item, resources) for item in kind.elements])
        case wit.OptionType():
            return _option_writer(writer(kind.payload, resources))
        case wit.VariantType():
            return _variant_writer({name: (name.encode(), maybe(case)) for name, case in kind.cases})
        case wit.ResultType():
            return _result_writer(maybe(kind.ok), maybe(kind.err))
        case wit.OwnType():
            return _resource_writer(kind.ty, resources)
    raise NotImplementedError(f"no writer for the WIT type {kind}")


def _resource_writer(resource: ResourceType, resources: Resources) -> Writer:
    number = next((number for number, known in resources.items() if known == resource), None)

    def write_resource(context: int, rep: int) -> bytes:
        if number is None:
            raise TypeError("a resource that this host doesn't make")
        host, handle = abi.resource_new(True, rep, number), c_void_p()
        error = abi.resource_to_any(context, host, byref(handle))
        abi.resource_delete(host)
        abi.raise_error(error)
        return VALUE.pack(ffi.WASMTIME_COMPONENT_RESOURCE.value, handle.value or 0, 0, 0)

    return write_resource


def _new_name(name: bytes) -> tuple[int, int]:
    abi.new_bytes(_vector_at, len(name), name)
    return len(name), _vector.data or 0


def _text_writer(kind: int) -> Writer:
    def write_text(context: int, value: str) -> bytes:
        # A lone surrogate has no UTF-8 form; it arrives as U+FFFD rather than as a trap.
        size, data = _new_name(value.encode("utf-8", "replace"))
        return VALUE.pack(kind, size, data, 0)

    return write_text


def _list_writer(item: Writer) -> Writer:
    return lambda context, values: new_list(b"".join([item(context, value) for value in values]), len(values))


def _record_writer(fields: Sequence[tuple[bytes, Writer]]) -> Writer:
    kind = ffi.WASMTIME_COMPONENT_RECORD.value

    def write_record(context: int, value: Sequence[Any]) -> bytes:
        parts = []
        for (name, write), field in zip(fields, value, strict=True):
            written = write(context, field)
            parts += [_NAME.pack(*_new_name(name)), written]
        abi.new_record(_vector_at, len(fields))
        return _filled(kind, b"".join(parts), len(fields))

    return write_record


def _tuple_writer(items: Sequence[Writer]) -> Writer:
    kind = ffi.WASMTIME_COMPONENT_TUPLE.value

    def write_tuple(context: int, value: Sequence[Any]) -> bytes:
        block = b"".join([write(context, item) for write, item in zip(items, value, strict=True)])
        abi.new_tuple(_vector_at, len(items))
        return _filled(kind, block, len(items))

    return write_tuple


def _filled(kind: int, block: bytes, count: int) -> bytes:
    """The vector that was just made, with its contents."""
    data = _vector.data or 0
    ctypes.memmove(data, block, len(block))
    return VALUE.pack(kind, count, data, 0)


def _option_writer(payload: Writer) -> Writer:
    kind = ffi.WASMTIME_COMPONENT_OPTION.value
    return lambda context, value: VALUE.pack(kind, 0 if value is None else new_value(payload(context, value)), 0, 0)


def _variant_writer(cases: Mapping[str, tuple[bytes, Writer | None]]) -> Writer:
    kind = ffi.WASMTIME_COMPONENT_VARIANT.value

    def write_variant(context: int, value: tuple[str, Any]) -> bytes:
        name, write = cases[value[0]]
        payload = new_value(write(context, value[1])) if write else 0
        return VALUE.pack(kind, *_new_name(name), payload)

    return write_variant


def _result_writer(ok: Writer | None, err: Writer | None) -> Writer:
    kind = ffi.WASMTIME_COMPONENT_RESULT.value

    def write_result(context: int, value: Any) -> bytes:
        if isinstance(value, PieError):
            value = Failed((value.code, value.message))
        if isinstance(value, Failed):
            return VALUE.pack(kind, 0, new_value(err(context, value.payload)) if err else 0, 0)
        return VALUE.pack(kind, 1, new_value(ok(context, value)) if ok else 0, 0)

    return write_result
