"""Products with matrices, and their rows, by MLX's ops."""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from pie_edge.backends.metal.packing import BLOCK
from pie_edge.backends.metal.weights import Form, Matrix

_MANY = 8
"""Rows of x from which on a matrix of codes is taken apart first: MLX's product on a processor does that again for each row."""


def product(x: mx.array, matrix: Matrix) -> mx.array:
    """x · matrixᵀ, as a processor does it best."""
    form = matrix.form
    if form.dense:
        return x @ matrix.values.T
    if x.shape[0] >= _MANY:
        return x @ mx.contiguous(dequantised(matrix).T)
    return quantised(x, matrix) if form.is_mlx else x @ dequantised(matrix).T


def by_mlx(x: mx.array, matrix: Matrix) -> mx.array:
    """x · matrixᵀ by MLX's own product, as it lies."""
    return x @ matrix.values.T if matrix.form.dense else quantised(x, matrix)


def quantised(x: mx.array, matrix: Matrix) -> mx.array:
    """x · matrixᵀ of codes that lie as MLX's own product takes them."""
    form, scales = matrix.form, matrix.scales
    assert scales is not None
    return mx.quantized_matmul(
        x, matrix.values, scales, matrix.biases, transpose=True, group_size=form.group, bits=form.bits
    )


def rows_of(matrix: Matrix, rows: mx.array) -> mx.array:
    """Some rows, as float32."""
    parts = [mx.take(array, rows, axis=0) for array in matrix.arrays()]
    return dequantised(Matrix(matrix.form, *parts))


def dequantised(matrix: Matrix) -> mx.array:
    """[rows, columns] in float32."""
    form, values = matrix.form, matrix.values
    if form.dense:
        return values.astype(mx.float32)
    assert matrix.scales is not None
    if form.is_mlx:
        return mx.dequantize(values, matrix.scales, matrix.biases, group_size=form.group, bits=form.bits)
    by_group = _codes(form, values).reshape(matrix.rows, form.groups, form.group)
    weights = by_group * matrix.scales.astype(mx.float32)[..., None]
    if matrix.biases is not None:
        weights = weights + matrix.biases.astype(mx.float32)[..., None]
    return weights.reshape(matrix.rows, form.columns)


def _codes(form: Form, words: mx.array) -> mx.array:
    """What codes stand for before they are scaled: [rows, columns] in float32."""
    groups = (words.shape[0], words.shape[1] // form.bits)
    codes = mx.dequantize(words, mx.ones(groups), mx.zeros(groups), group_size=BLOCK, bits=form.bits)
    if form.table:
        codes = mx.take(mx.array(np.array(form.table, np.float32)), codes.astype(mx.uint32))
    codes = codes[:, : form.columns]
    return codes - form.zero if form.zero else codes
