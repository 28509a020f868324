"""CUDA C++ as a dialect of scalar expressions: how each of their operations is written.

Integers are ``u32`` throughout, and operations say how they are meant. Float operations are the functions that round once and
that no compiler brings together with others.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from pie_edge.program.node_types import Element
from pie_edge.sampling.dialects.scalar import BOOL, F32, I32, U32, Scalar

TYPES = {F32: "float", I32: "u32", U32: "u32", BOOL: "bool"}

_INTEGER = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^", "eq": "==", "ne": "!="}
_UNSIGNED = {"div": "/", "mod": "%", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_COMPARED = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "=="}
_FUNCTIONS = {"floor": "floorf", "ceil": "ceilf", "round": "rintf", "sqrt": "__fsqrt_rn"}

FORMS: Mapping[tuple[str, Element], str] = {
    **{(op, F32): f"__f{op}_rn({{0}}, {{1}})" for op in ("add", "sub", "mul", "div")},
    **{(op, F32): f"({{0}} {sign} {{1}})" for op, sign in _COMPARED.items()},
    ("ne", F32): "(!({0} == {1}))",
    ("neg", F32): "__uint_as_float(__float_as_uint({0}) ^ 0x80000000u)",
    ("abs", F32): "__uint_as_float(__float_as_uint({0}) & 0x7fffffffu)",
    **{(op, F32): f"{name}({{0}})" for op, name in _FUNCTIONS.items()},
    **{(op, e): f"({{0}} {sign} {{1}})" for op, sign in _INTEGER.items() for e in (I32, U32)},
    **{("not", e): "(~{0})" for e in (I32, U32)},
    **{("neg", e): "(0u - {0})" for e in (I32, U32)},
    **{("shl", e): "({0} << ({1} & 31u))" for e in (I32, U32)},
    **{(op, U32): f"({{0}} {sign} {{1}})" for op, sign in _UNSIGNED.items()},
    ("shr", U32): "({0} >> ({1} & 31u))",
    ("shr", I32): "(u32)((int){0} >> ({1} & 31u))",
    **{(op, I32): f"((int){{0}} {_UNSIGNED[op]} (int){{1}})" for op in ("lt", "le", "gt", "ge")},
    ("abs", I32): "((int){0} < 0 ? 0u - {0} : {0})",
    ("and", BOOL): "({0} && {1})",
    ("or", BOOL): "({0} || {1})",
    ("not", BOOL): "(!{0})",
    ("eq", BOOL): "({0} == {1})",
    ("ne", BOOL): "({0} != {1})",
}
"""By the type of the first argument."""

_CONVERSIONS: Mapping[tuple[Element, Element], str] = {
    (F32, I32): "(u32)__float2int_rz({0})",
    (F32, U32): "__float2uint_rz({0})",
    (I32, F32): "__int2float_rn((int){0})",
    (U32, F32): "__uint2float_rn({0})",
}


def constant(element: Element, value: Any) -> str:
    if element is BOOL:
        return "true" if value else "false"
    if element is not F32:
        return f"{int(value) & 0xFFFFFFFF}u"
    (word,) = struct.unpack("<I", struct.pack("<f", value))
    return f"__uint_as_float({word}u)"


def written(scalar: Scalar, arguments: list[str]) -> str:
    """An operation of arguments that have names."""
    op, element = scalar.op, scalar.element
    if op == "select":
        return "({} ? {} : {})".format(*arguments)
    source = scalar.arguments[0].element
    if op == "convert":
        return _CONVERSIONS[source, element].format(*arguments)
    if op == "bits":
        return arguments[0] if TYPES[source] == TYPES[element] else from_word(as_word(arguments[0], source), element)
    return FORMS[op, source].format(*arguments)


def as_word(value: str, element: Element) -> str:
    if element is BOOL:
        return f"(u32){value}"
    return f"__float_as_uint({value})" if element is F32 else value


def from_word(word: str, element: Element) -> str:
    return f"__uint_as_float({word})" if element is F32 else word
