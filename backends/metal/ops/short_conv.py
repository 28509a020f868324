"""A causal convolution of each column over its sequence."""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from pie_edge.backends.metal.context import Arrays, Context
from pie_edge.backends.metal.launch import Kernel, Launch
from pie_edge.backends.metal.ops.activations import ACTIVATIONS
from pie_edge.backends.metal.ops.matrices import NOTHING
from pie_edge.backends.metal.ops.products import dequantised
from pie_edge.backends.metal.ops.recurrent import table, talks
from pie_edge.backends.metal.weights import Matrix
from pie_edge.program.ops import Op

_KERNEL = Kernel("short_conv", ("x", "weight", "tail", "rows", "talks", "shift"), ("y",))


def ops(c: Context, op: Op, x: mx.array, weight: Matrix, tail: mx.array, *rest: mx.array) -> Arrays:
    bias = rest[3] if len(rest) > 3 else None
    taps = dequantised(weight).T  # [W, C]
    parts = []
    for talk in talks(c, op):
        rows = x[talk.first : talk.first + talk.rows]
        seen = mx.concatenate([talk.before(tail, taps.shape[0] - 1), rows])
        parts.append(sum((taps[j] * seen[j : j + talk.rows] for j in range(taps.shape[0])), mx.array(0.0)))
    y = mx.concatenate(parts)
    return (ACTIVATIONS[str(op.attribute("act"))](y if bias is None else y + bias),)


def kernel(c: Context, op: Op, x: mx.array, weight: Matrix, tail: mx.array, *rest: mx.array) -> Arrays:
    bias = rest[3] if len(rest) > 3 else NOTHING
    taps, columns = weight.form.columns, x.shape[1]
    given = (("TAPS", taps), ("COLUMNS", columns), ("LENGTH", tail.shape[1]), ("SHIFTED", len(rest) > 3))
    rows = c.once("rows of talks", lambda: _rows(c, op))
    inputs = (x, dequantised(weight), tail, rows, table(c, op), bias)
    launch = Launch(_KERNEL, inputs, ((x.shape, mx.float32),), (columns, x.shape[0], 1), (64, 1, 1), given)
    (y,) = c.launch(launch)
    return (ACTIVATIONS[str(op.attribute("act"))](y),)


def _rows(c: Context, op: Op) -> mx.array:
    """[T, 2]: each row's sequence, and its place there."""
    found = [(s, n) for s, talk in enumerate(talks(c, op)) for n in range(talk.rows)]
    return mx.array(np.array(found, np.uint32))
