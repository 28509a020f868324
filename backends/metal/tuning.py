"""What MLX's own kernels do, by how large it is, and what is left to ours: products with codes, where a matrix lies as MLX takes
it (groups of 32, 64 or 128 with biases), those of experts, products with dense matrices, and the order of a row's entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from pie_edge.backends.metal.weights import Matrix
from pie_edge.program.encodings import Dense, DType
from pie_edge.program.ops import Value

ROWS = (1, 4, 16, 64)
"""Rows of x that are measured; each stands for those up to it, the last one for all above, too."""
EXTENTS = (4096, 131072)
"""Entries of a row that are measured, likewise."""
_WIDENED = 256 << 20
"""Bytes that a dense matrix may take as float32, which MLX's product with rows of those makes of it, for as long as it lasts."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """Whether MLX's is taken, for each of ROWS or of EXTENTS."""

    by_mlx: tuple[bool, ...] = (False, False, True, True)
    """With codes. By default prompts: MLX's kernels use the GPU's matrix units, and ours don't; but for a decode MLX widens all
    scales to x's type first."""
    dense_by_mlx: tuple[bool, ...] = (False, False, False, True)
    """With dense matrices. By default prompts of more than 16 rows: a matrix of halves is widened to float32 first, all of it."""
    experts_by_mlx: tuple[bool, ...] = (False, False, True, True)
    """With experts' codes, as with codes."""
    kth_largest_by_mlx: tuple[bool, ...] = (False, False)
    """MLX sorts whole rows for it, as for the next two."""
    nucleus_by_mlx: tuple[bool, ...] = (False, False)
    top_k_by_mlx: tuple[bool, ...] = (False, False)
    sort_by_mlx: tuple[bool, ...] = (False, True)
    """By default long rows: MLX spreads one over threadgroups, and ours takes a single one for it."""

    @classmethod
    def ours(cls) -> Self:
        """Nothing by MLX's."""
        return cls(*((False,) * len(_default(one.name)) for one in fields(cls)))

    def is_mlx(self, matrix: Matrix, rows: int) -> bool:
        if matrix.form.dense:
            return _chosen(self.dense_by_mlx, ROWS, rows) and 4 * matrix.rows * matrix.form.columns <= _WIDENED
        return matrix.form.is_mlx and _chosen(self.by_mlx, ROWS, rows)

    def is_mlx_of_experts(self, matrix: Matrix, rows: int) -> bool:
        return matrix.form.is_mlx and _chosen(self.experts_by_mlx, ROWS, rows)

    def is_mlx_node(self, node: str, extent: int) -> bool:
        """One of an epilogue's nodes that there is a kernel for."""
        return _chosen(getattr(self, f"{node}_by_mlx"), EXTENTS, extent)

    def document(self) -> dict[str, Any]:
        """As it is kept."""
        return {name: list(choices) for name, choices in asdict(self).items()}

    @classmethod
    def read(cls, document: dict[str, Any]) -> Self | None:
        """What was kept, or None for what is no tuning."""
        found = {one.name: document.get(one.name) for one in fields(cls)}
        if all(
            isinstance(choices, list) and len(choices) == len(_default(name)) and {*map(type, choices)} == {bool}
            for name, choices in found.items()
        ):
            return cls(**{name: tuple(choices or ()) for name, choices in found.items()})
        return None


def _default(name: str) -> tuple[bool, ...]:
    found: tuple[bool, ...] = getattr(Tuning(), name)
    return found


def _chosen(choices: Sequence[bool], sizes: Sequence[int], size: int) -> bool:
    return choices[next((place for place, most in enumerate(sizes) if size <= most), -1)]


def widened_bytes(weights: Sequence[Value]) -> int:
    """Of the largest of these that a product may make float32 of."""
    halves = (
        v for v in weights if isinstance(v.encoding, Dense) and v.encoding.dtype is not DType.F32 and len(v.shape) == 2
    )
    return max((4 * v.size for v in halves if 4 * v.size <= _WIDENED), default=0)
