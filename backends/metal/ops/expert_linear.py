"""Each row times the matrices of its experts."""

from __future__ import annotations

import mlx.core as mx

from pie_edge.backends.metal.context import Arrays, Context
from pie_edge.backends.metal.launch import Kernel, Launch
from pie_edge.backends.metal.ops.matrices import NAMES, NOTHING, arrays, constants
from pie_edge.backends.metal.ops.products import dequantised
from pie_edge.backends.metal.weights import Matrix
from pie_edge.program.ops import Op

_KERNEL = Kernel("expert_linear", ("x", "experts", *NAMES, "shift"), ("y",), ("weights",))
_ROWS = 4


def ops(
    c: Context,
    op: Op,
    x: mx.array,
    experts: mx.array,
    order: mx.array,
    starts: mx.array,
    weight: Matrix,
    bias: mx.array | None = None,
) -> Arrays:
    count, form = starts.shape[0] - 1, weight.form
    # [T, 1 or K, 1, columns] by [E, rows, columns] -> [T, K, 1, rows]
    parts = x.reshape(x.shape[0], x.shape[1] // form.columns, 1, form.columns)
    if form.is_mlx:
        codes, scales, biases = (array.reshape(count, -1, array.shape[-1]) for array in weight.arrays())
        y = mx.gather_qmm(
            parts, codes, scales, biases, rhs_indices=experts, transpose=True, group_size=form.group, bits=form.bits
        )
    else:
        matrices = dequantised(weight).reshape(count, -1, form.columns)
        y = mx.gather_mm(parts, matrices.swapaxes(1, 2), rhs_indices=experts)
    y = y[..., 0, :]
    if bias is not None:
        y = y + mx.take(bias.reshape(count, -1), experts, axis=0)
    return (y.reshape(x.shape[0], y.shape[1] * y.shape[2]),)


def kernel(
    c: Context,
    op: Op,
    x: mx.array,
    experts: mx.array,
    order: mx.array,
    starts: mx.array,
    weight: Matrix,
    bias: mx.array | None = None,
) -> Arrays:
    (tokens, chosen), columns = experts.shape, weight.form.columns
    rows = weight.rows // (starts.shape[0] - 1)
    own = x.shape[1] != columns
    given = (("N", rows), ("SHIFTED", bias is not None), ("ROWS", _ROWS), ("CHOSEN", chosen), ("OWN", own))
    launch = Launch(
        _KERNEL,
        (x, experts, *arrays(weight), NOTHING if bias is None else bias),
        (((tokens * chosen, rows), mx.float32),),
        (32, -(-rows // _ROWS), tokens * chosen),
        (32, 4, 1),
        (*constants(weight), *given),
    )
    return (c.launch(launch)[0].reshape(tokens, chosen * rows),)
