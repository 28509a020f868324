"""What norms have in common."""

from __future__ import annotations

import mlx.core as mx

MOST_THREADS = 256


def normed(x: mx.array, weight: mx.array, eps: float, offset: float) -> mx.array:
    """The root mean square norm of the last axis, by MLX's ops."""
    return mx.fast.rms_norm(x, weight + offset if offset else weight, eps)


def threads(width: int) -> int:
    """That share a row in a kernel: whole simdgroups."""
    return min(-(-width // 32) * 32, MOST_THREADS)
