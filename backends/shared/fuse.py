"""Fewer, larger launches: matrices that multiply the same rows run in one, gates are applied at once, and what is stored
is computed where it is stored. The result is a Program again, with kinds that only backends know:

    linear_group  (x, w0, w1[, w2][, b0, b1[, b2]]) → (y0, y1[, y2])   each y_i = x · w_iᵀ + b_i
    gated_linear  (x, gate, up) → (y)                  y = act(x · gateᵀ) · (x · upᵀ)
    rope_append   (q, k, v, positions, write_slots[, factors]) → (y, K, V, key_positions)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pie_edge.program.ops import Op, Program, Role

MOST = 3
"""Matrices of a launch."""
Together = Callable[[Sequence[str]], bool]
"""Whether the weights of these names can be bound as one."""


FUSED = frozenset({"linear_group", "gated_linear", "rope_append"})
"""Kinds that only backends know."""


def fuse(program: Program, together: Together) -> Program:
    ops = _store_in_place(program, list(program.ops))
    inner = _read_once(program, ops)
    fused: list[Op] = []
    while ops:
        group = _same_input(ops)
        while len(group) > 1 and not together([name for op in group for name in op.inputs[1:]]):
            group.pop()
        gate, append = _gated(ops, inner), _appended(ops, inner)
        if append is not None:
            fused.append(append)
            del ops[:3]
        elif gate is not None and together(gate.inputs[1:]):
            fused.append(gate)
            del ops[:3]
        elif len(group) > 1:
            weights = tuple(op.inputs[1] for op in group)
            biases = tuple(bias for op in group for bias in op.inputs[2:])
            inputs = (group[0].inputs[0], *weights, *biases)
            fused.append(Op("linear_group", inputs, tuple(op.outputs[0] for op in group)))
            del ops[: len(group)]
        else:
            fused.append(ops.pop(0))
    return replace(program, ops=tuple(fused))


def fuse_appends(program: Program) -> Program:
    """Only what turns queries and keys and writes those to the cache together: for a device that finds the rest itself."""
    ops = list(program.ops)
    inner = _read_once(program, ops)
    fused: list[Op] = []
    while ops:
        append = _appended(ops, inner)
        fused.append(append or ops[0])
        del ops[: 3 if append else 1]
    return replace(program, ops=tuple(fused))


def _read_once(program: Program, ops: Sequence[Op]) -> set[str]:
    """Temporaries that a single op reads: only what nobody else may ask for can be left out."""
    return {name for name, count in _uses(ops).items() if count == 1 and program.values[name].role is Role.TEMP}


def _uses(ops: Sequence[Op]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for op in ops:
        for name in op.inputs:
            counts[name] = counts.get(name, 0) + 1
    return counts


def _same_input(ops: Sequence[Op]) -> list[Op]:
    """The linear ops at the head of ``ops`` that share their input, all with a bias or none."""
    found: list[Op] = []
    for op in ops[:MOST]:
        if op.kind != "linear" or len(op.inputs) != len(ops[0].inputs) or op.inputs[0] != ops[0].inputs[0]:
            break
        found.append(op)
    return found


def _gated(ops: Sequence[Op], inner: set[str]) -> Op | None:
    """The gated unit that the next three ops are, if they are one and nothing else reads its halves."""
    if len(ops) < 3 or len(_same_input(ops[:2])) != 2 or ops[2].kind != "glu":
        return None
    gate, up, unit = ops[:3]
    halves = (gate.outputs[0], up.outputs[0])
    if len(gate.inputs) > 2:
        return None
    if unit.inputs != halves or not inner.issuperset(halves):
        return None
    return Op("gated_linear", (gate.inputs[0], gate.inputs[1], up.inputs[1]), unit.outputs, unit.attributes)


def _appended(ops: Sequence[Op], inner: set[str]) -> Op | None:
    """Rope of queries, rope of keys in the same way, and the append of those keys for which they were turned."""
    if [op.kind for op in ops[:3]] != ["rope", "rope", "kv_append"]:
        return None
    q, k, append = ops[:3]
    same = all(q.attribute(name) == k.attribute(name) for name in ("rotary", "base", "scale", "style", "magnitude"))
    if not same or q.inputs[1:] != k.inputs[1:] or append.inputs[0] != k.outputs[0] or k.outputs[0] not in inner:
        return None
    if append.inputs[2] != q.inputs[1] or q.inputs[0] == k.inputs[0]:
        return None
    attributes = (*q.attributes, ("kv_heads", append.integer("heads")), ("page_size", append.integer("page_size")))
    inputs = (q.inputs[0], k.inputs[0], *append.inputs[1:], *q.inputs[2:])
    return Op("rope_append", inputs, (*q.outputs, *append.outputs), attributes)


def _store_in_place(program: Program, ops: list[Op]) -> list[Op]:
    """Without the ``store`` of what the op right before it computed for it alone: that op writes the state itself."""
    uses, kept = _uses(ops), list[Op]()
    for op in ops:
        before = kept[-1] if kept else None
        (x,) = op.inputs if op.kind == "store" else ("",)
        if before is not None and before.outputs == (x,) and uses[x] == 1 and program.values[x].role is Role.TEMP:
            kept[-1] = replace(before, outputs=op.outputs)
        else:
            kept.append(op)
    return kept
