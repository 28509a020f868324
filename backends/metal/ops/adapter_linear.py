"""Each row times the matrix of its adapter, added to what it is given; nothing where the row has none."""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from pie_edge.backends.metal.context import Arrays, Context
from pie_edge.program.ops import Op


def ops(
    c: Context, op: Op, x: mx.array, matrices: mx.array, adapters: mx.array, base: mx.array | None = None
) -> Arrays:
    numbers = c.inputs[op.inputs[2]]
    y = mx.zeros((x.shape[0], matrices.shape[1])) if base is None else base
    for number in np.unique(numbers[numbers > 0]):
        rows = mx.array(np.flatnonzero(numbers == number).astype(np.uint32))
        y = y.at[rows].add(x[rows] @ matrices[int(number) - 1].T)
    return (y,)
