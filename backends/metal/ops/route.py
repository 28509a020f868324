"""The chosen experts of each row, and what each weighs."""

from __future__ import annotations

import mlx.core as mx

from pie_edge.backends.metal.context import Arrays, Context
from pie_edge.backends.metal.ops.ordered import falling, order
from pie_edge.program.ops import Op


def ops(c: Context, op: Op, logits: mx.array) -> Arrays:
    experts = order(falling(logits))[:, : op.integer("chosen")]
    shares = mx.exp(logits - logits.max(axis=1, keepdims=True))
    weights = mx.take_along_axis(shares, experts, axis=1)
    whole = weights if op.attribute("normalised") else shares
    return experts, weights / whole.sum(axis=1, keepdims=True) * op.number("scale")
