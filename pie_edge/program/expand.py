"""Rewriting a Program for a backend that lacks a fused kind: each fused row of the op table has a decomposition here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from pie_edge.errors import Unsupported
from pie_edge.program.ops import KINDS, Op, Program


def _add_rms_norm(op: Op) -> tuple[Op, ...]:
    x, residual, weight = op.inputs
    total, y = op.outputs
    norm = (*op.attributes, ("groups", 1))
    return Op("add", (x, residual), (total,)), Op("rms_norm", (total, weight), (y,), norm)


DECOMPOSITIONS: Mapping[str, Callable[[Op], tuple[Op, ...]]] = {"add_rms_norm": _add_rms_norm}


def expand(program: Program, supported: frozenset[str]) -> Program:
    """The same Program in kinds that are all ``supported``. Raises Unsupported naming a kind that can't be decomposed."""
    ops: list[Op] = []
    pending = list(reversed(program.ops))
    while pending:
        op = pending.pop()
        if op.kind in supported:
            ops.append(op)
        elif op.kind in DECOMPOSITIONS:
            pending += reversed(DECOMPOSITIONS[op.kind](op))
        else:
            known = "is not in the op table" if op.kind not in KINDS else "has no simpler form"
            raise Unsupported(
                f"program {program.name} needs op {op.kind!r}, which this backend lacks and which {known}"
            )
    return replace(program, ops=tuple(ops))
