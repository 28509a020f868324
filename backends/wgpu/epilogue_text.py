"""WGSL as a dialect of scalar expressions. A float's bits are never folded by a compiler: ``exact`` stands after every operation
that might be contracted or reordered, ``float_of`` makes what no constant may be."""

from __future__ import annotations

import math
import struct

from pie_edge.backends.shared.epilogue_dialect import Dialect
from pie_edge.sampling.dialects.scalar import F32, I32, U32


def _float_constant(word: int) -> str:
    (value,) = struct.unpack("<f", struct.pack("<I", word))
    usual = math.isfinite(value) and value >= 2.0**-126
    return f"f32({value!r})" if usual else f"float_of({word}u)"


WGSL = Dialect(
    float_type="f32",
    as_float="bitcast<f32>({0})",
    as_bits="bitcast<u32>({0})",
    signed="bitcast<i32>({0})",
    unsigned="bitcast<u32>({0})",
    truth="select(0u, 1u, {0})",
    select="select({2}, {1}, {0})",
    arithmetic={
        op: f"exact({{0}} {sign} {{1}})" for op, sign in {"add": "+", "sub": "-", "mul": "*", "div": "/"}.items()
    },
    functions={op: op for op in ("floor", "ceil", "round", "sqrt")},
    conversions={
        (F32, I32): "bitcast<u32>(i32({0}))",
        (F32, U32): "u32({0})",
        (I32, F32): "f32(bitcast<i32>({0}))",
        (U32, F32): "f32({0})",
    },
    declared="let {name}: {type} = {value};",
    loop="for (var index = {first}; index < {extent}; index += {step})",
    leaves={"slot": "slot", "pass": "pass_", "row": "row", "index": "index", "hidden": "p.zero"},
    lane="lane",
    column="workgroup.x",
    columns="workgroups.x",
    float_constant=_float_constant,
    is_plain=lambda constant: not constant.startswith("float_of"),
)
