"""Each of some equal parts of a row, divided by its root mean square, times the weight."""

from __future__ import annotations

import mlx.core as mx

from pie_edge.backends.metal.context import Arrays, Context
from pie_edge.backends.metal.launch import Kernel, Launch
from pie_edge.backends.metal.ops.norms import normed, threads
from pie_edge.program.ops import Op

_KERNEL = Kernel("rms_norm", ("x", "weight", "numbers"), ("y",), ("reduce",))


def ops(c: Context, op: Op, x: mx.array, weight: mx.array) -> Arrays:
    groups = op.integer("groups")
    parts = x.reshape(x.shape[0], groups, x.shape[1] // groups)
    return (normed(parts, weight, op.number("eps"), op.number("offset")).reshape(x.shape),)


def kernel(c: Context, op: Op, x: mx.array, weight: mx.array) -> Arrays:
    parts = x.reshape(-1, x.shape[1] // op.integer("groups"))
    rows, width = parts.shape
    numbers = c.numbers(op.number("eps"), op.number("offset"))
    given = (("WIDTH", width), ("THREADS", threads(width)))
    outputs = ((x.shape, mx.float32),)
    launch = Launch(
        _KERNEL, (parts, weight, numbers), outputs, (threads(width), rows, 1), (threads(width), 1, 1), given
    )
    return c.launch(launch)
