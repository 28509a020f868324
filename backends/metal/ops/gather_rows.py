"""Some rows of x."""

from __future__ import annotations

import mlx.core as mx

from pie_edge.backends.metal.context import Arrays, Context
from pie_edge.program.ops import Op


def ops(c: Context, op: Op, x: mx.array, rows: mx.array) -> Arrays:
    return (mx.take(x, rows, axis=0),)
