"""Which products MLX's own kernels do, where a matrix lies as they take it: codes in groups of 32, 64 or 128 with biases. Others
are left to ours."""

from __future__ import annotations

from dataclasses import dataclass

ROWS = (1, 4, 16, 64)
"""Rows of x that are measured; each stands for those up to it, the last one for all above, too."""


@dataclass(frozen=True, slots=True)
class Tuning:
    by_mlx: tuple[bool, ...] = (False, False, True, True)
    """For each of ROWS. By default prompts: MLX's kernels use the GPU's matrix units, and ours don't; but for a decode MLX widens
    all scales to x's type first."""

    def is_mlx(self, rows: int) -> bool:
        place = next((place for place, most in enumerate(ROWS) if rows <= most), -1)
        return self.by_mlx[place]
