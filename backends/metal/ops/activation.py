"""act(x)."""

from __future__ import annotations

import mlx.core as mx

from pie_edge.backends.metal.context import Arrays, Context
from pie_edge.backends.metal.ops.activations import ACTIVATIONS
from pie_edge.program.ops import Op


def ops(c: Context, op: Op, x: mx.array) -> Arrays:
    return (ACTIVATIONS[str(op.attribute("act"))](x),)
