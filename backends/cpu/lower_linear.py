"""What instructions of ``linear`` and ``expert_linear`` share: ``kernels/prepared.h`` and ``kernels/linear.h``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pie_edge.errors import Unsupported

if TYPE_CHECKING:
    from pie_edge.backends.cpu.lowering import Lowering
    from pie_edge.backends.cpu.weights import Format

TILE, VECTOR_ROWS = 4, 2
"""As in ``kernels/prepared.h``."""


def matrix_format(low: Lowering, name: str) -> Format:
    form = low.weights[name].format
    if form is None:
        raise Unsupported(f"{low.value(name)} is used as a matrix, but is a vector")
    return form


def prepared_row(columns: int, group: int) -> int:
    """Bytes that a row in vector form, or a tile, takes at most. ``group`` 0: for dense weights."""
    return columns * 16 + (3 * 16 * columns // group if group else 0)


def product_scratch(form: Format, columns: int) -> int:
    """Working memory of a thread: an opened strip."""
    return columns * 16 + columns // form.group * 64 if form.affine else columns * 32
