"""Rows of a table: of token ids, or of tokens in the device's pool."""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from pie_edge.backends.metal.context import Arrays, Context
from pie_edge.backends.metal.launch import Kernel, Launch
from pie_edge.backends.metal.ops.matrices import NAMES, arrays, constants
from pie_edge.backends.metal.ops.products import rows_of
from pie_edge.backends.metal.weights import Matrix
from pie_edge.program.ops import Op

_KERNEL = Kernel("embed", ("ids", *NAMES, "factor"), ("y",), ("weights",))


def ops(c: Context, op: Op, table: Matrix, token_src: mx.array, tokens: mx.array) -> Arrays:
    ids = c.once(("ids", op.inputs[1]), lambda: _ids(c, op.inputs[1], tokens))
    # An id from the pool that the table hasn't: what that gives may be anything, but it has to lie in the table.
    found = rows_of(table, mx.minimum(ids, table.rows - 1))
    scale = op.number("scale")
    return (found if scale == 1 else found * scale,)


def _ids(c: Context, name: str, tokens: mx.array) -> mx.array:
    source = c.inputs[name].astype(np.int64)  # learned positions are looked up too, and those have no sign
    if (source >= 0).all():
        return mx.array(source.astype(np.uint32))
    pooled = mx.take(tokens, mx.array(np.maximum(-1 - source, 0).astype(np.uint32)))
    return mx.where(mx.array(source < 0), pooled, mx.array(np.maximum(source, 0).astype(np.uint32)))


def kernel(c: Context, op: Op, table: Matrix, token_src: mx.array, tokens: mx.array) -> Arrays:
    ids = c.once(("ids", op.inputs[1]), lambda: _ids(c, op.inputs[1], tokens))
    count, columns = token_src.shape[0], table.form.columns
    inputs = (mx.minimum(ids, table.rows - 1), *arrays(table), c.numbers(op.number("scale")))
    grid = -(-columns // 8), count, 1
    outputs = (((count, columns), mx.float32),)
    return c.launch(Launch(_KERNEL, inputs, outputs, grid, (64, 1, 1), constants(table)))
