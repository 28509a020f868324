"""From wasmtime's values to Python's."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping, Sequence
from ctypes import byref, c_void_p
from typing import Any

from wasmtime.component import _types as wit

from pie_edge.host.wasm import abi
from pie_edge.host.wasm.abi import FIELD, SIZE, VALUE, Failed, Reader, read
from pie_edge.host.wasm.scalars import SCALARS


def reader(kind: Any) -> Reader:
    """How values of a WIT type are read."""
    if type(kind) in SCALARS:
        return SCALARS[type(kind)].reader
    match kind:
        case wit.String() | wit.EnumType():
            return _read_string
        case wit.ListType():
            return _list_reader(kind.element)
        case wit.RecordType():
            return _record_reader([reader(field) for _, field in kind.fields])
        case wit.TupleType():
            return _tuple_reader([reader(item) for item in kind.elements])
        case wit.OptionType():
            return _option_reader(reader(kind.payload))
        case wit.VariantType():
            return _variant_reader({name: _maybe(case) for name, case in kind.cases})
        case wit.ResultType():
            return _result_reader(_maybe(kind.ok), _maybe(kind.err))
        case wit.OwnType() | wit.BorrowType():
            return _read_resource
    raise NotImplementedError(f"no reader for the WIT type {kind}")


def _maybe(kind: Any) -> Reader | None:
    return None if kind is None else reader(kind)


def _read_string(context: int, size: int, data: int, _: int) -> str:
    return ctypes.string_at(data, size).decode() if size else ""


def _read_resource(context: int, address: int, b: int, c: int) -> int:
    host = c_void_p()
    # A borrowed argument has to be consumed exactly once, or the call traps: this is that once.
    abi.raise_error(abi.resource_to_host(context, address, byref(host)))
    rep: int = abi.resource_rep(host)
    abi.resource_delete(host)
    return rep


def _list_reader(element: Any) -> Reader:
    if type(element) in SCALARS:
        return SCALARS[type(element)].list_reader
    item = reader(element)

    def read_list(context: int, size: int, data: int, _: int) -> list[Any]:
        if not size:
            return []
        block = ctypes.string_at(data, SIZE * size)
        return [item(context, a, b, c) for _, a, b, c in VALUE.iter_unpack(block)]

    return read_list


def _record_reader(fields: Sequence[Reader]) -> Reader:
    layout = struct.Struct("<" + FIELD * len(fields))
    indexed = [(reader, 3 * i) for i, reader in enumerate(fields)]

    def read_record(context: int, size: int, data: int, _: int) -> tuple[Any, ...]:
        words = layout.unpack(ctypes.string_at(data, layout.size))
        return tuple([reader(context, words[i], words[i + 1], words[i + 2]) for reader, i in indexed])

    return read_record


def _tuple_reader(items: Sequence[Reader]) -> Reader:
    def read_tuple(context: int, size: int, data: int, _: int) -> tuple[Any, ...]:
        words = VALUE.iter_unpack(ctypes.string_at(data, SIZE * len(items)))
        return tuple([item(context, a, b, c) for item, (_, a, b, c) in zip(items, words, strict=True)])

    return read_tuple


def _option_reader(payload: Reader) -> Reader:
    return lambda context, a, b, c: read(payload, context, a) if a else None


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
