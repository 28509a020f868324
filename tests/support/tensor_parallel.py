"""A model Program split over ranks, as ``docs/decisions/017-tensor-parallelism.md`` has it, and run by the NumPy reference.

Every value has a layout: whole on each rank, split (each rank has its columns, those of whole heads or of a part of each
expert), or partial (each rank has a summand). An op that can't take a partial value ends a segment: the ranks' summands are
added up there, and all go on with the sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pie_edge.program import reference
from pie_edge.program.encodings import Dense, DType, Encoding
from pie_edge.program.ops import Op, Program, Role
from pie_edge.program.step import StepInputs, StepLayout
from tests.support.oracle_run import Loaded, cache_for

Floats = NDArray[np.float32]
COLUMNS = {"q", "k", "v", "gate", "up", "expert_gate", "expert_up"}
"""Parts whose output is split: their rows go to the ranks."""


class Layout(Enum):
    WHOLE = "whole"
    SPLIT = "split"
    PARTIAL = "partial"


WHOLE, SPLIT, PARTIAL = Layout


@dataclass
class Plan:
    """``segments`` are of each rank, the same for all; after each of them come ``sums``. ``cuts`` says of each weight which axis
    is shared out, and into how many equal parts it is divided before; ``first`` are weights of the first rank alone."""

    ranks: int
    segments: list[list[Op]] = field(default_factory=lambda: [[]])
    sums: list[str | Op] = field(default_factory=list)
    """Values whose summands are added up, and norms over rows that are split."""
    cuts: dict[str, tuple[int, int]] = field(default_factory=dict)
    first: set[str] = field(default_factory=set)
    split_states: set[str] = field(default_factory=set)
    layouts: dict[str, Layout] = field(default_factory=dict)

    def of(self, name: str) -> Layout:
        return self.layouts.get(name, WHOLE)

    def summed(self, name: str) -> None:
        """It is whole from here on."""
        if self.of(name) is PARTIAL:
            self.sums.append(name)
            self.segments.append([])
            self.layouts[name] = WHOLE

    def emit(self, op: Op, layout: Layout, **changed: int) -> None:
        attributes = tuple((name, changed.get(name, value)) for name, value in op.attributes)
        self.segments[-1].append(replace(op, attributes=attributes))
        self.layouts |= dict.fromkeys(op.outputs, layout)

    def cut(self, weight: str, axis: int, parts: int = 1) -> None:
        assert self.cuts.setdefault(weight, (axis, parts)) == (axis, parts), weight


def plan(program: Program, spec: Any, ranks: int) -> Plan:
    found = Plan(ranks)
    for op in program.ops:
        _RULES.get(op.kind, _alike)(found, op, spec)
    return found


def _part(weight: str) -> str:
    return weight.rpartition(".")[2]


def _embed(p: Plan, op: Op, spec: Any) -> None:
    if op.inputs[0] != "embed":
        p.emit(op, WHOLE)
        return
    p.cut("embed", 0)
    p.emit(op, PARTIAL)


def _linear(p: Plan, op: Op, spec: Any) -> None:
    x, weight, *bias = op.inputs
    p.summed(x)
    if p.of(x) is SPLIT:
        p.cut(weight, 1)
        p.first |= set(bias)
        p.emit(op, PARTIAL)
    elif _part(weight) in COLUMNS and (_part(weight) not in "kv" or spec.kv_heads % p.ranks == 0):
        for name in (weight, *bias):
            p.cut(name, 0)
        p.emit(op, SPLIT)
    elif weight in ("head", "embed"):
        p.cut(weight, 0)
        p.emit(op, SPLIT)
    else:
        p.emit(op, WHOLE)


def _expert_linear(p: Plan, op: Op, spec: Any) -> None:
    x, _, _, _, weight, *bias = op.inputs
    p.summed(x)
    if p.of(x) is SPLIT:
        p.cut(weight, 1)
        p.first |= set(bias)
        p.emit(op, PARTIAL)
        return
    for name in (weight, *bias):
        p.cut(name, 0, spec.experts)
    p.emit(op, SPLIT)


def _norm(p: Plan, op: Op, spec: Any) -> None:
    x = op.inputs[0]
    p.summed(x)
    if p.of(x) is not SPLIT:
        p.emit(op, WHOLE)
        return
    groups = op.integer("groups")
    if groups > 1:
        p.emit(op, SPLIT, groups=groups // p.ranks)
        return
    # Over all heads: what is summed is a number a row.
    p.cut(op.inputs[1], 0)
    p.sums.append(op)
    p.segments.append([])
    p.layouts |= dict.fromkeys(op.outputs, SPLIT)


def _add_norm(p: Plan, op: Op, spec: Any) -> None:
    for name in op.inputs[:2]:
        p.summed(name)
    p.emit(op, WHOLE)


def _rope(p: Plan, op: Op, spec: Any) -> None:
    layout = p.of(op.inputs[0])
    p.emit(op, layout, heads=op.integer("heads") // (p.ranks if layout is SPLIT else 1))


def _kv_append(p: Plan, op: Op, spec: Any) -> None:
    layout = p.of(op.inputs[0])
    if layout is SPLIT:
        p.split_states |= set(op.outputs[:2])
    p.emit(op, WHOLE, heads=op.integer("heads") // (p.ranks if layout is SPLIT else 1))
    p.layouts |= dict.fromkeys(op.outputs[:2], layout)


def _attention(p: Plan, op: Op, spec: Any) -> None:
    shared = p.of(op.inputs[1]) is SPLIT
    # Keys that all ranks have are all queries' keys: a model of fewer key heads than ranks has one here.
    assert shared or op.integer("kv_heads") == 1
    if op.attribute("sinks"):
        p.cut(op.named["sinks"], 0)
    kv_heads = op.integer("kv_heads") // (p.ranks if shared else 1)
    p.emit(op, SPLIT, heads=op.integer("heads") // p.ranks, kv_heads=kv_heads)


def _combine(p: Plan, op: Op, spec: Any) -> None:
    p.emit(op, p.of(op.inputs[0]))


def _gather(p: Plan, op: Op, spec: Any) -> None:
    p.emit(op, p.of(op.inputs[0]))


def _store(p: Plan, op: Op, spec: Any) -> None:
    assert p.of(op.inputs[0]) is SPLIT
    p.split_states |= set(op.outputs)
    p.emit(op, SPLIT)


def _alike(p: Plan, op: Op, spec: Any) -> None:
    """Value by value: inputs of one layout, and the output has it too."""
    for name in op.inputs:
        p.summed(name)
    (layout,) = {p.of(name) for name in op.inputs}
    p.emit(op, layout)


_RULES = {
    "embed": _embed,
    "linear": _linear,
    "expert_linear": _expert_linear,
    "rms_norm": _norm,
    "layer_norm": _norm,
    "add_rms_norm": _add_norm,
    "rope": _rope,
    "kv_append": _kv_append,
    "attention": _attention,
    "combine_experts": _combine,
    "gather_rows": _gather,
    "store": _store,
}


def share(array: Floats, axis: int, parts: int, rank: int, ranks: int) -> Floats:
    """What a rank gets of a weight: of each of the equal parts along the axis, its piece."""
    pieces = [np.split(part, ranks, axis)[rank] for part in np.split(array, parts, axis)]
    return np.ascontiguousarray(np.concatenate(pieces, axis))


def local(p: Plan, weights: Mapping[str, Floats], rank: int) -> dict[str, Floats]:
    """The weights of a rank."""
    found = {}
    for name, array in weights.items():
        if name in p.cuts:
            array = share(array, *p.cuts[name], rank, p.ranks)
        if name in p.first and rank:
            array = np.zeros_like(array)
        found[name] = array
    return found


def _states(program: Program, p: Plan) -> dict[str, Any]:
    found = {}
    for value in program.by_role(Role.STATE):
        shape = list(value.shape)
        if value.name in p.split_states:
            shape[1] //= p.ranks
        found[value.name] = np.zeros(shape, reference.NUMPY[value.dtype])
    return found


def _own_rows(table: Floats, step: StepInputs, rank: int) -> tuple[Floats, StepInputs]:
    """A rank's rows of the embedding with a row of zeros after them, and the step with the ids of all others naming that."""
    rows = len(table)
    ids = [id - rank * rows if 0 <= id - rank * rows < rows else rows for id in step.token_src]
    return np.concatenate([table, np.zeros((1, table.shape[1]), np.float32)]), replace(step, token_src=ids)


def split_logits(model: Loaded, step: StepInputs, ranks: int, skipped: Sequence[int] = ()) -> tuple[Floats, Plan]:
    """[rows, vocabulary] logits, each rank's columns beside the others'. Sums with the numbers ``skipped`` aren't made."""
    encodings: dict[str, Encoding] = dict.fromkeys(model.weights, Dense(DType.F32))
    bucket = step.counts
    program = model.family.trace(model.spec, bucket, cache_for([step], DType.F32), encodings)
    p = plan(program, model.spec, ranks)
    values: list[dict[str, Any]] = []
    blocks = []
    for rank in range(ranks):
        mine = local(p, model.weights, rank)
        table, own = _own_rows(mine["embed"], step, rank)
        values.append(mine | _states(program, p) | {"the embedding": table})
        blocks.append(StepLayout(bucket).pack(own).tobytes())
    for number, segment in enumerate(p.segments):
        part = Program("segment", program.values, tuple(map(_looks_up_own_rows, segment)))
        for rank in range(ranks):
            values[rank] |= reference.run(part, values[rank], blocks[rank])
        if number < len(p.sums) and number not in skipped:
            _sum(values, p.sums[number])
    return np.concatenate([mine["logits"][: bucket.sampled] for mine in values], axis=1), p


def _looks_up_own_rows(op: Op) -> Op:
    if op.kind == "embed" and op.inputs[0] == "embed":
        return replace(op, inputs=("the embedding", *op.inputs[1:]))
    return op


def _sum(values: list[dict[str, Any]], wanted: str | Op) -> None:
    if isinstance(wanted, str):
        total = sum(mine[wanted] for mine in values)
        for mine in values:
            mine[wanted] = total
        return
    (x, weight), (y,) = wanted.inputs, wanted.outputs
    squares = sum(np.mean(mine[x] * mine[x], axis=-1, keepdims=True) for mine in values) / np.float32(len(values))
    root = np.sqrt(squares + np.float32(wanted.number("eps")))
    for mine in values:
        mine[y] = mine[x] / root * (mine[weight] + np.float32(wanted.number("offset")))
