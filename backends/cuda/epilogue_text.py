"""CUDA C++ as a dialect of scalar expressions. Float operations are the functions that round once and that no compiler brings
together with others."""

from __future__ import annotations

from pie_edge.backends.shared.epilogue_dialect import Dialect
from pie_edge.sampling.dialects.scalar import F32, I32, U32

CUDA = Dialect(
    float_type="float",
    as_float="__uint_as_float({0})",
    as_bits="__float_as_uint({0})",
    signed="(int){0}",
    unsigned="(u32)({0})",
    truth="(u32){0}",
    select="({0} ? {1} : {2})",
    arithmetic={op: f"__f{op}_rn({{0}}, {{1}})" for op in ("add", "sub", "mul", "div")},
    functions={"floor": "floorf", "ceil": "ceilf", "round": "rintf", "sqrt": "__fsqrt_rn"},
    conversions={
        (F32, I32): "(u32)__float2int_rz({0})",
        (F32, U32): "__float2uint_rz({0})",
        (I32, F32): "__int2float_rn((int){0})",
        (U32, F32): "__uint2float_rn({0})",
    },
    declared="{type} {name} = {value};",
    loop="for (u32 index = {first}; index < {extent}; index += {step})",
    leaves={"slot": "slot", "pass": "pass", "row": "row", "index": "index", "hidden": "0u"},
    lane="threadIdx.x",
    column="blockIdx.x",
    columns="gridDim.x",
    float_constant=lambda word: f"__uint_as_float({word}u)",
)
