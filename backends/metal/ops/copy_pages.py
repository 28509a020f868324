"""Pages of a state over others of it."""

from __future__ import annotations

import mlx.core as mx

from pie_edge.backends.metal.context import Arrays, Context
from pie_edge.program.ops import Op


def ops(c: Context, op: Op, counts: mx.array, sources: mx.array, targets: mx.array, state: mx.array) -> Arrays:
    count = int(c.inputs[op.inputs[0]][0])
    if count:
        # What is copied is computed first: while it is read the state counts as in use, and writing it would copy all of it.
        copied = mx.take(state, sources[:count], axis=0)
        mx.eval(copied)
        state[targets[:count]] = copied
    return (state,)
