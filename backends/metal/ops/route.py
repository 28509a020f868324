"""The chosen experts of each row, and what each weighs."""

from __future__ import annotations

import mlx.core as mx

from pie_edge.backends.metal.context import Arrays, Context
from pie_edge.backends.metal.launch import Kernel, Launch
from pie_edge.backends.metal.ops.ordered import falling, order
from pie_edge.program.ops import Op

_KERNEL = Kernel("route", ("logits", "numbers"), ("experts", "weights"), ("words", "keys"))
_MOST = 4096
"""Experts whose keys a threadgroup holds; more are MLX's affair."""


def ops(c: Context, op: Op, logits: mx.array) -> Arrays:
    experts = order(falling(logits))[:, : op.integer("chosen")]
    shares = mx.exp(logits - logits.max(axis=1, keepdims=True))
    weights = mx.take_along_axis(shares, experts, axis=1)
    whole = weights if op.attribute("normalised") else shares
    return experts, weights / whole.sum(axis=1, keepdims=True) * op.number("scale")


def kernel(c: Context, op: Op, logits: mx.array) -> Arrays:
    rows, count = logits.shape
    if count > _MOST:
        return ops(c, op, logits)
    chosen = op.integer("chosen")
    given = (("EXPERTS", count), ("CHOSEN", chosen), ("NORMALISED", bool(op.attribute("normalised"))))
    outputs = ((rows, chosen), mx.uint32), ((rows, chosen), mx.float32)
    inputs = logits, c.numbers(op.number("scale"))
    return c.launch(Launch(_KERNEL, inputs, outputs, (32, rows, 1), (32, 1, 1), given))
