"""x · weightᵀ (+ bias)."""

from __future__ import annotations

import mlx.core as mx

from pie_edge.backends.metal.context import Arrays, Context
from pie_edge.backends.metal.launch import LEAST, Kernel, Launch, Launcher
from pie_edge.backends.metal.ops.matrices import NAMES, NOTHING, arrays, constants
from pie_edge.backends.metal.ops.products import by_mlx, product
from pie_edge.backends.metal.weights import Matrix
from pie_edge.program.ops import Op

_FEW = Kernel("linear", ("x", *NAMES, "shift"), ("y",), ("weights",))
_MANY = Kernel("linear_tile", ("x", *NAMES, "shift"), ("y",), ("weights",))
_TILE = 16
"""Rows of x from which on tiles are worth it."""


def ops(c: Context, op: Op, x: mx.array, weight: Matrix, bias: mx.array | None = None) -> Arrays:
    y = product(x, weight)
    return (y if bias is None else y + bias,)


def kernel(c: Context, op: Op, x: mx.array, weight: Matrix, bias: mx.array | None = None) -> Arrays:
    if c.tuning.is_mlx(weight, x.shape[0]):
        y = by_mlx(x, weight)
        return (y if bias is None else y + bias,)
    return by_hand(c.launcher, x, weight, bias)


def by_hand(launcher: Launcher, x: mx.array, weight: Matrix, bias: mx.array | None) -> Arrays:
    true = x.shape[0]
    # The kernels count rows by x's shape: one of fewer entries than an array has is made longer by rows.
    short = max(-(-LEAST // x.shape[1]) - true, 0)
    if short:
        x = mx.pad(x, [(0, short), (0, 0)])
    (y,) = launcher(_launch(x, weight, bias))
    return (y[:true] if short else y,)


def _launch(x: mx.array, weight: Matrix, bias: mx.array | None) -> Launch:
    tokens, rows = x.shape[0], weight.rows
    inputs = (x, *arrays(weight), NOTHING if bias is None else bias)
    given = (*constants(weight), ("N", rows), ("SHIFTED", bias is not None))
    outputs = (((tokens, rows), mx.float32),)
    if tokens >= _TILE:
        grid = -(-rows // 32) * 8, -(-tokens // 64) * 16, 1
        return Launch(_MANY, inputs, outputs, grid, (8, 16, 1), given)
    together = next(count for count in (1, 2, 4, 8) if count >= min(tokens, 8))
    each = 4 if together <= 2 else 2
    grid = 32, -(-rows // each), -(-tokens // together)
    shape = (("ROWS", each), ("TOKENS", together))
    return Launch(_FEW, inputs, outputs, grid, (32, 4, 1), (*given, *shape))
