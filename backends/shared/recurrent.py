"""What launches of ops with recurrent state are made of, whatever the API."""

from __future__ import annotations

from typing import Any

from pie_edge.backends.shared.lowering import BaseLowering
from pie_edge.backends.shared.weights import Matrix
from pie_edge.errors import Unsupported
from pie_edge.program.ops import Op

FIELDS = ("counts", "query_starts", "state_slots", "state_spans")
"""Of the step: where the state is."""


def convolution(c: BaseLowering[Any, Any], op: Op, title: str) -> Matrix:
    """The weight of a ``short_conv``."""
    matrix = c.matrix(op.inputs[1])
    if matrix.packing.quantised or len(matrix.parts) > 1:
        raise Unsupported(f"{op}: the {title} backend takes dense convolutions that lie together")
    return matrix
