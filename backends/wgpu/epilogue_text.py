"""WGSL as a dialect of scalar expressions: how each of their operations is written.

Integers are u32 throughout, and operations say how they are meant. A float's bits are never folded by a compiler: ``exact``
stands after every operation that might be contracted or reordered, ``float_of`` makes what no constant may be.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Any

from pie_edge.program.node_types import Element
from pie_edge.sampling.dialects.scalar import BOOL, F32, I32, U32, Scalar

TYPES = {F32: "f32", I32: "u32", U32: "u32", BOOL: "bool"}
_SIGNED = "bitcast<i32>({})"

_INTEGER = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^", "eq": "==", "ne": "!="}
_UNSIGNED = {"div": "/", "mod": "%", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_FLOAT = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "=="}
_ARITHMETIC = {"add": "+", "sub": "-", "mul": "*", "div": "/"}

FORMS: Mapping[tuple[str, Element], str] = {
    **{(op, F32): f"exact({{0}} {sign} {{1}})" for op, sign in _ARITHMETIC.items()},
    **{(op, F32): f"({{0}} {sign} {{1}})" for op, sign in _FLOAT.items()},
    ("ne", F32): "!({0} == {1})",
    ("neg", F32): "bitcast<f32>(bitcast<u32>({0}) ^ 0x80000000u)",
    ("abs", F32): "bitcast<f32>(bitcast<u32>({0}) & 0x7FFFFFFFu)",
    **{(op, F32): f"{op}({{0}})" for op in ("floor", "ceil", "round", "sqrt")},
    **{(op, e): f"({{0}} {sign} {{1}})" for op, sign in _INTEGER.items() for e in (I32, U32)},
    **{("not", e): "(~{0})" for e in (I32, U32)},
    **{("neg", e): "(0u - {0})" for e in (I32, U32)},
    **{("shl", e): "({0} << ({1} & 31u))" for e in (I32, U32)},
    **{(op, U32): f"({{0}} {sign} {{1}})" for op, sign in _UNSIGNED.items()},
    ("shr", U32): "({0} >> ({1} & 31u))",
    ("shr", I32): f"bitcast<u32>({_SIGNED.format('{0}')} >> ({{1}} & 31u))",
    **{
        (op, I32): f"({_SIGNED.format('{0}')} {_UNSIGNED[op]} {_SIGNED.format('{1}')})"
        for op in ("lt", "le", "gt", "ge")
    },
    ("abs", I32): f"bitcast<u32>(abs({_SIGNED.format('{0}')}))",
    ("and", BOOL): "({0} && {1})",
    ("or", BOOL): "({0} || {1})",
    ("not", BOOL): "(!{0})",
    ("eq", BOOL): "({0} == {1})",
    ("ne", BOOL): "({0} != {1})",
}
"""By the type of the first argument."""

_CONVERSIONS: Mapping[tuple[Element, Element], str] = {
    (F32, I32): "bitcast<u32>(i32({0}))",
    (F32, U32): "u32({0})",
    (I32, F32): f"f32({_SIGNED.format('{0}')})",
    (U32, F32): "f32({0})",
}


def constant(element: Element, value: Any) -> str:
    if element is BOOL:
        return "true" if value else "false"
    if element is not F32:
        return f"{int(value) & 0xFFFFFFFF}u"
    (word,) = struct.unpack("<I", struct.pack("<f", value))
    (rounded,) = struct.unpack("<f", struct.pack("<f", value))
    usual = math.isfinite(rounded) and (abs(rounded) >= 2.0**-126)
    return f"f32({rounded!r})" if usual and rounded > 0 else f"float_of({word}u)"


def written(scalar: Scalar, arguments: list[str]) -> str:
    """An operation of arguments that have names."""
    op, element = scalar.op, scalar.element
    if op == "select":
        return f"select({arguments[2]}, {arguments[1]}, {arguments[0]})"
    source = scalar.arguments[0].element
    if op == "convert":
        return _CONVERSIONS[source, element].format(*arguments)
    if op == "bits":
        same = TYPES[source] == TYPES[element]
        return arguments[0] if same else f"bitcast<{TYPES[element]}>({arguments[0]})"
    return FORMS[op, source].format(*arguments)


def as_word(value: str, element: Element) -> str:
    if element is BOOL:
        return f"select(0u, 1u, {value})"
    return f"bitcast<u32>({value})" if element is F32 else value


def from_word(word: str, element: Element) -> str:
    return f"bitcast<f32>({word})" if element is F32 else word
