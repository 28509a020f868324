"""The gated unit of gpt-oss: the gate is cut off above, the other half on both sides."""

from __future__ import annotations

import mlx.core as mx

from pie_edge.backends.metal.context import Arrays, Context
from pie_edge.program.ops import Op


def ops(c: Context, op: Op, gate: mx.array, up: mx.array) -> Arrays:
    limit = op.number("limit")
    gate, up = mx.minimum(gate, limit), mx.clip(up, -limit, limit)
    return (gate * mx.sigmoid(op.number("slope") * gate) * (up + 1),)
