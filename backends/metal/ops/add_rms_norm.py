"""A sum and its norm."""

from __future__ import annotations

import mlx.core as mx

from pie_edge.backends.metal.context import Arrays, Context
from pie_edge.backends.metal.launch import Kernel, Launch
from pie_edge.backends.metal.ops.norms import normed, threads
from pie_edge.program.ops import Op

_KERNEL = Kernel("add_rms_norm", ("x", "residual", "weight", "numbers"), ("total", "y"), ("reduce",))


def ops(c: Context, op: Op, x: mx.array, residual: mx.array, weight: mx.array) -> Arrays:
    total = x + residual
    return total, normed(total, weight, op.number("eps"), op.number("offset"))


def kernel(c: Context, op: Op, x: mx.array, residual: mx.array, weight: mx.array) -> Arrays:
    rows, width = x.shape
    numbers = c.numbers(op.number("eps"), op.number("offset"))
    given = (("WIDTH", width), ("THREADS", threads(width)))
    outputs = ((x.shape, mx.float32),) * 2
    launch = Launch(
        _KERNEL, (x, residual, weight, numbers), outputs, (threads(width), rows, 1), (threads(width), 1, 1), given
    )
    return c.launch(launch)
