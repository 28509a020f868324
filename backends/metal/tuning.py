"""Which products MLX's own kernels do, by how many rows they have: with codes, where a matrix lies as MLX takes it (groups of 32,
64 or 128 with biases), and with dense matrices. Others are left to ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from pie_edge.backends.metal.weights import Matrix
from pie_edge.program.encodings import Dense, DType
from pie_edge.program.ops import Value

ROWS = (1, 4, 16, 64)
"""Rows of x that are measured; each stands for those up to it, the last one for all above, too."""
_WIDENED = 256 << 20
"""Bytes that a dense matrix may take as float32, which MLX's product with rows of those makes of it, for as long as it lasts."""


@dataclass(frozen=True, slots=True)
class Tuning:
    by_mlx: tuple[bool, ...] = (False, False, True, True)
    """For each of ROWS, with codes. By default prompts: MLX's kernels use the GPU's matrix units, and ours don't; but for a
    decode MLX widens all scales to x's type first."""
    dense_by_mlx: tuple[bool, ...] = (False, False, False, True)
    """With dense matrices. By default prompts of more than 16 rows: a matrix of halves is widened to float32 first, all of it."""

    def is_mlx(self, matrix: Matrix, rows: int) -> bool:
        place = next((place for place, most in enumerate(ROWS) if rows <= most), -1)
        if matrix.form.dense:
            return self.dense_by_mlx[place] and 4 * matrix.rows * matrix.form.columns <= _WIDENED
        return matrix.form.is_mlx and self.by_mlx[place]

    def document(self) -> dict[str, Any]:
        """As it is kept."""
        return {name: list(choices) for name, choices in asdict(self).items()}

    @classmethod
    def read(cls, document: dict[str, Any]) -> Self | None:
        """What was kept, or None for what is no tuning."""
        found = {name: document.get(name) for name in cls.__slots__}
        if all(isinstance(c, list) and len(c) == len(ROWS) and {*map(type, c)} == {bool} for c in found.values()):
            return cls(**{name: tuple(choices or ()) for name, choices in found.items()})
        return None


def widened_bytes(weights: Sequence[Value]) -> int:
    """Of the largest of these that a product may make float32 of."""
    halves = (
        v for v in weights if isinstance(v.encoding, Dense) and v.encoding.dtype is not DType.F32 and len(v.shape) == 2
    )
    return max((4 * v.size for v in halves if 4 * v.size <= _WIDENED), default=0)
