"""The places of each expert's rows, one expert after the other."""

from __future__ import annotations

import mlx.core as mx

from pie_edge.backends.metal.context import Arrays, Context
from pie_edge.backends.metal.ops.ordered import order
from pie_edge.program.ops import Op


def ops(c: Context, op: Op, experts: mx.array) -> Arrays:
    flat = experts.reshape(-1)
    numbers = mx.arange(op.integer("experts") + 1, dtype=mx.uint32)
    starts = (flat[None, :] < numbers[:, None]).sum(axis=1).astype(mx.uint32)
    return order(flat).reshape(experts.shape), starts
