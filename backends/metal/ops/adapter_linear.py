"""Each row times the matrix of its adapter, added to what it is given; nothing where the row has none."""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from pie_edge.backends.metal.context import Arrays, Context
from pie_edge.backends.metal.launch import Kernel, Launch
from pie_edge.backends.metal.ops.matrices import NOTHING
from pie_edge.program.ops import Op

_KERNEL = Kernel("adapter_linear", ("x", "matrices", "adapters", "base"), ("y",))


def ops(
    c: Context, op: Op, x: mx.array, matrices: mx.array, adapters: mx.array, base: mx.array | None = None
) -> Arrays:
    numbers = c.inputs[op.inputs[2]]
    y = _given(x, matrices, base)
    for number in np.unique(numbers[numbers > 0]):
        rows = mx.array(np.flatnonzero(numbers == number).astype(np.uint32))
        y = y.at[rows].add(x[rows] @ matrices[int(number) - 1].T)
    return (y,)


def kernel(
    c: Context, op: Op, x: mx.array, matrices: mx.array, adapters: mx.array, base: mx.array | None = None
) -> Arrays:
    if not c.inputs[op.inputs[2]].any():
        return (_given(x, matrices, base),)
    _, outputs, columns = matrices.shape
    launch = Launch(
        _KERNEL,
        (x, matrices, c.words(op.inputs[2]), NOTHING if base is None else base),
        (((x.shape[0], outputs), mx.float32),),
        (32, outputs, x.shape[0]),
        (32, 8, 1),
        (("N", outputs), ("COLUMNS", columns), ("ADDED", base is not None)),
    )
    return c.launch(launch)


def _given(x: mx.array, matrices: mx.array, base: mx.array | None) -> mx.array:
    return mx.zeros((x.shape[0], matrices.shape[1])) if base is None else base
