"""SPIR-V as a dialect of scalar expressions: how each of their operations is written."""

from __future__ import annotations

from collections.abc import Mapping

from pie_edge.backends.vulkan.spirv import Glsl, Op
from pie_edge.program.node_types import Element
from pie_edge.sampling.dialects.scalar import BOOL, F32, I32, U32

INSTRUCTIONS: Mapping[tuple[str, Element], Op] = {
    ("add", F32): Op.F_ADD,
    ("sub", F32): Op.F_SUB,
    ("mul", F32): Op.F_MUL,
    ("div", F32): Op.F_DIV,
    ("neg", F32): Op.F_NEGATE,
    ("lt", F32): Op.F_LESS,
    ("le", F32): Op.F_LESS_EQUAL,
    ("gt", F32): Op.F_GREATER,
    ("ge", F32): Op.F_GREATER_EQUAL,
    ("eq", F32): Op.F_EQUAL,
    ("ne", F32): Op.F_NOT_EQUAL,
    **{("neg", e): Op.S_NEGATE for e in (I32, U32)},
    **{("add", e): Op.I_ADD for e in (I32, U32)},
    **{("sub", e): Op.I_SUB for e in (I32, U32)},
    **{("mul", e): Op.I_MUL for e in (I32, U32)},
    **{("and", e): Op.BITWISE_AND for e in (I32, U32)},
    **{("or", e): Op.BITWISE_OR for e in (I32, U32)},
    **{("xor", e): Op.BITWISE_XOR for e in (I32, U32)},
    **{("not", e): Op.NOT for e in (I32, U32)},
    **{("shl", e): Op.SHIFT_LEFT for e in (I32, U32)},
    **{("eq", e): Op.I_EQUAL for e in (I32, U32)},
    **{("ne", e): Op.I_NOT_EQUAL for e in (I32, U32)},
    ("div", U32): Op.U_DIV,
    ("mod", U32): Op.U_MOD,
    ("shr", U32): Op.SHIFT_RIGHT_LOGICAL,
    ("shr", I32): Op.SHIFT_RIGHT_ARITHMETIC,
    ("lt", U32): Op.U_LESS,
    ("le", U32): Op.U_LESS_EQUAL,
    ("gt", U32): Op.U_GREATER,
    ("ge", U32): Op.U_GREATER_EQUAL,
    ("lt", I32): Op.S_LESS,
    ("le", I32): Op.S_LESS_EQUAL,
    ("gt", I32): Op.S_GREATER,
    ("ge", I32): Op.S_GREATER_EQUAL,
    ("and", BOOL): Op.LOGICAL_AND,
    ("or", BOOL): Op.LOGICAL_OR,
    ("not", BOOL): Op.LOGICAL_NOT,
    ("eq", BOOL): Op.LOGICAL_EQUAL,
    ("ne", BOOL): Op.LOGICAL_NOT_EQUAL,
}
"""By the type of the first argument. Signed and unsigned integers are one type, and instructions say how they are meant."""

EXTENDED: Mapping[tuple[str, Element], Glsl] = {
    ("abs", F32): Glsl.F_ABS,
    ("abs", I32): Glsl.S_ABS,
    ("floor", F32): Glsl.FLOOR,
    ("ceil", F32): Glsl.CEIL,
    ("round", F32): Glsl.ROUND_EVEN,
    ("sqrt", F32): Glsl.SQRT,
}

CONVERSIONS: Mapping[tuple[Element, Element], Op] = {
    (F32, I32): Op.CONVERT_F_TO_S,
    (F32, U32): Op.CONVERT_F_TO_U,
    (I32, F32): Op.CONVERT_S_TO_F,
    (U32, F32): Op.CONVERT_U_TO_F,
}
