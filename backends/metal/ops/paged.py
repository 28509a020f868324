"""Writing into states whose axis of slots is not their first one."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray


def scattered(state: mx.array, places: NDArray[np.uint32], values: mx.array, width: int) -> mx.array:
    """The state with ``values`` [n, width] at ``places`` of it as rows of ``width``. MLX's own indexing by several axes with
    others between them has another meaning than NumPy's, and would move the axes."""
    rows = state.reshape(-1, width)
    rows[mx.array(places)] = values
    return rows.reshape(state.shape)
