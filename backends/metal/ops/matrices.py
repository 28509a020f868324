"""Matrices as kernels by hand take them."""

from __future__ import annotations

from functools import cache
from typing import Any

import mlx.core as mx
import numpy as np

from pie_edge.backends.metal.weights import Matrix

NAMES = ("w", "scales", "biases", "table")
NOTHING = mx.array(np.zeros(8, np.float32))
"""In the place of an input that there is none of."""
NO_WORDS = mx.array(np.zeros(8, np.uint32))
"""In the place of one of words: another type would make another kernel."""


def arrays(matrix: Matrix) -> tuple[mx.array, ...]:
    table = matrix.form.table
    given = matrix.scales, matrix.biases, _table(table) if table else None
    return (matrix.values, *(NOTHING if array is None else array for array in given))


@cache
def _table(values: tuple[float, ...]) -> mx.array:
    return mx.array(np.array(values, np.float32))


def constants(matrix: Matrix) -> tuple[tuple[str, Any], ...]:
    form = matrix.form
    return (
        ("BITS", form.bits),
        ("GROUP", max(form.group, 1)),
        ("BIASED", form.biased),
        ("TABLED", bool(form.table)),
        ("ZERO", form.zero),
        ("COLUMNS", form.columns),
    )
