"""A row less its mean, divided by its standard deviation, times the weight (+ bias)."""

from __future__ import annotations

import mlx.core as mx

from pie_edge.backends.metal.context import Arrays, Context
from pie_edge.program.ops import Op


def ops(c: Context, op: Op, x: mx.array, weight: mx.array, bias: mx.array | None = None) -> Arrays:
    return (mx.fast.layer_norm(x, weight, bias, op.number("eps")),)
