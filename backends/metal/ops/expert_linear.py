"""Each row times the matrices of its experts."""

from __future__ import annotations

import mlx.core as mx

from pie_edge.backends.metal.context import Arrays, Context
from pie_edge.backends.metal.launch import Kernel, Launch, Launcher
from pie_edge.backends.metal.ops.matrices import NAMES, NOTHING, arrays, constants
from pie_edge.backends.metal.ops.products import dequantised
from pie_edge.backends.metal.weights import Matrix
from pie_edge.program.ops import Op

_KERNEL = Kernel("expert_linear", ("x", "experts", *NAMES, "shift"), ("y",), ("weights",))
_ROWS = 4
_MANY = 64
"""Pairs of a row and an expert from which on MLX is given them in the experts' order, so that it reads each matrix once for
many."""


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
    count = starts.shape[0] - 1
    if weight.form.is_mlx:
        y = by_mlx(x, experts, order, weight, count)
    else:
        matrices = dequantised(weight).reshape(count, -1, weight.form.columns)
        y = mx.gather_mm(_parts(x, weight), matrices.swapaxes(1, 2), rhs_indices=experts)[..., 0, :]
        y = y.reshape(x.shape[0], -1)
    return (_shifted(y, experts, bias, count),)


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
    count = starts.shape[0] - 1
    if c.tuning.is_mlx_of_experts(weight, x.shape[0]):
        return (_shifted(by_mlx(x, experts, order, weight, count), experts, bias, count),)
    return (by_hand(c.launcher, x, experts, weight, count, bias),)


def by_mlx(x: mx.array, experts: mx.array, order: mx.array, weight: Matrix, count: int) -> mx.array:
    """By MLX's own product of codes that lie as it takes them: [T, K · rows], of ``count`` experts."""
    form, parts = weight.form, _parts(x, weight)
    codes, scales, biases = (array.reshape(count, -1, array.shape[-1]) for array in weight.arrays())
    chosen = experts
    if many := experts.size >= _MANY:
        places = order.reshape(-1)
        # Rows that all experts of a token share are there once.
        rows = places if parts.shape[1] > 1 else places // experts.shape[1]
        parts, chosen = parts.reshape(-1, 1, form.columns)[rows], experts.reshape(-1)[places]
    y = mx.gather_qmm(
        parts,
        codes,
        scales,
        biases,
        rhs_indices=chosen,
        transpose=True,
        group_size=form.group,
        bits=form.bits,
        sorted_indices=many,
    )
    y = y[..., 0, :]
    return (y[mx.argsort(places)] if many else y).reshape(x.shape[0], -1)


def by_hand(
    launcher: Launcher, x: mx.array, experts: mx.array, weight: Matrix, count: int, bias: mx.array | None
) -> mx.array:
    """[T, K · rows], of ``count`` experts."""
    (tokens, chosen), rows = experts.shape, weight.rows // count
    own = x.shape[1] != weight.form.columns
    given = (("N", rows), ("SHIFTED", bias is not None), ("ROWS", _ROWS), ("CHOSEN", chosen), ("OWN", own))
    launch = Launch(
        _KERNEL,
        (x, experts, *arrays(weight), NOTHING if bias is None else bias),
        (((tokens * chosen, rows), mx.float32),),
        (32, -(-rows // _ROWS), tokens * chosen),
        (32, 4, 1),
        (*constants(weight), *given),
    )
    return launcher(launch)[0].reshape(tokens, chosen * rows)


def _parts(x: mx.array, weight: Matrix) -> mx.array:
    """[T, 1 or K, 1, columns]"""
    return x.reshape(x.shape[0], x.shape[1] // weight.form.columns, 1, weight.form.columns)


def _shifted(y: mx.array, experts: mx.array, bias: mx.array | None, count: int) -> mx.array:
    return y if bias is None else y + mx.take(bias.reshape(count, -1), experts, axis=0).reshape(y.shape)
