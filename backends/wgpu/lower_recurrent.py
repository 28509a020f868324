"""Launches of ops with recurrent state; ``shaders/wgsl/lib/recurrent.wgsl`` reads the fields of the step that say where it is."""

from __future__ import annotations

from typing import Any

from pie_edge.backends.shared.grid import Count
from pie_edge.backends.shared.recurrent import FIELDS, convolution
from pie_edge.backends.wgpu.lower_linear import packed
from pie_edge.backends.wgpu.lowering import Lowering
from pie_edge.backends.wgpu.plan import Launch, launch
from pie_edge.backends.wgpu.shader import shader
from pie_edge.program.ops import Op, Program


def short_conv(c: Lowering, op: Op) -> list[Launch]:
    x, _, tail, _, _, _, *bias = op.inputs
    matrix, columns = convolution(c, op, "wgpu"), c.width(x)
    act = str(op.attribute("act"))
    constants: dict[str, Any] = {"LOCAL": c.tuning.elementwise, "WIDTH": columns, **packed(c, matrix.packing)}
    constants |= {"LENGTH": c.program.values[tail].shape[1], "BIAS": bool(bias), "T": "f32"}
    bindings = {"x": c.place[x], "codes": matrix.parts[0].region, "tail": c.place[tail], "step": c.step}
    bindings["y"] = c.place[op.outputs[0]]
    if bias:
        vector = c.vector(bias[0])
        bindings["bias"] = vector.region
    kernel = shader("short_conv", **constants, ACT="" if act == "none" else act)
    return [launch(kernel, bindings, c.over(columns, c.rows_of(x)), **_step(c))]


def tail_append(c: Lowering, op: Op) -> list[Launch]:
    _, length, width = c.program.values[op.outputs[0]].shape
    kind, elements = ("vec4<f32>", width // 4) if width % 4 == 0 else ("f32", width)
    kernel = shader("tail_append", LOCAL=c.tuning.elementwise, ELEMENTS=elements, LENGTH=length, T=kind)
    grid = (-(-elements // c.tuning.elementwise), length, Count("sequences"))
    bindings = {"x": c.place[op.inputs[0]], "step": c.step, "tail": c.place[op.outputs[0]]}
    return [launch(kernel, bindings, grid, **_step(c))]


def gates_bytes(program: Program) -> int:
    """What a token's head keeps and learns, of the Program's largest ``gated_delta``: for all rows, and those run again."""
    return max(
        (8 * _tokens(program, op) * program.values[op.outputs[1]].shape[1] for op in _deltas(program)), default=0
    )


def _deltas(program: Program) -> list[Op]:
    return [op for op in program.ops if op.kind == "gated_delta"]


def _tokens(program: Program, op: Op) -> int:
    sequences, length = program.values["state_spans"].shape[0], program.values[op.inputs[5]].shape[1]
    return program.values[op.inputs[0]].shape[0] + sequences * length


def gated_delta(c: Lowering, op: Op) -> list[Launch]:
    """The gates of all tokens; then a workgroup for each few columns of a head's matrix, in every sequence."""
    qkv, a, b, decay, dt_bias, qkv_tail, a_tail, b_tail = op.inputs[:8]
    _, heads, key_dim, width = c.program.values[op.outputs[1]].shape
    length, local, room = c.program.values[qkv_tail].shape[1], c.tuning.by_row, c.capacity(qkv)
    assert c.scratch is not None
    shape = {"HEADS": heads, "LENGTH": length, "ROOM": room}
    found = c.scratch.part(0, 8 * _tokens(c.program, op) * heads)
    gates = c.gates(decay, dt_bias, bool(op.attribute("log_decay")))
    bindings = {"a": c.place[a], "b": c.place[b], "a_tail": c.place[a_tail], "b_tail": c.place[b_tail]}
    first = launch(
        shader("delta_gates", LOCAL=c.tuning.reduction, **shape),
        bindings | {"gates": gates, "step": c.step, "found": found},
        (-(-heads // c.tuning.reduction), room + length, Count("sequences")),
        **_step(c),
    )
    constants: dict[str, Any] = {"LOCAL": local, "SUBGROUPS": c.tuning.subgroups, "KEY_HEADS": op.integer("key_heads")}
    constants |= {"KEY_DIM": key_dim, "WIDTH": width, "FOURS": -(-key_dim // 4)}
    constants |= {"TILED": bool(op.attribute("tiled")), "EPS": op.number("eps")}
    bindings = {"qkv": c.place[qkv], "qkv_tail": c.place[qkv_tail], "found": found, "step": c.step}
    bindings |= {"y": c.place[op.outputs[0]], "state": c.place[op.outputs[1]]}
    grid = (-(-width // local), heads, Count("sequences"))
    return [first, launch(shader("gated_delta", **constants, **shape), bindings, grid, **_step(c))]


def _step(c: Lowering) -> dict[str, int]:
    return {name: c.words[name] for name in FIELDS} | {"zero": 0}
