"""What MLX fails with in the middle of a run, as an error of the tree."""

from __future__ import annotations

import re
from typing import Final

import mlx.core as mx

from pie_edge.errors import DeviceLost, OutOfMemory, PieError

_REFUSED: Final = (
    "[malloc] unable to allocate",
    "[metal::malloc] attempting to allocate",
    "[metal::malloc] resource limit",
    "insufficient memory",
)
"""What one of is in MLX's words where there is no memory: Metal gave no buffer, it is larger than a buffer may be, there are as
many buffers as there may be, and Metal ended a command buffer for it."""
_ASKED = re.compile(r"allocate (\d+) bytes")


def is_the_devices(error: Exception) -> bool:
    """MLX tells all that it meets on its device as RuntimeError, and what it is asked wrong as ValueError."""
    return isinstance(error, RuntimeError | MemoryError | DeviceLost | OutOfMemory)


def translated(error: Exception) -> PieError:
    """DeviceLost, OutOfMemory, or what it is already if that is an error of the tree."""
    if isinstance(error, PieError):
        return error
    if isinstance(error, MemoryError) or any(words in str(error).lower() for words in _REFUSED):
        told: PieError = OutOfMemory(_short_of_memory(str(error)))
    else:
        told = DeviceLost(f"the Metal device was lost in the middle of a run: {type(error).__name__}: {error}")
    told.__cause__ = error
    return told


def _short_of_memory(said: str) -> str:
    used, kept, peak = (count() / 2**20 for count in (mx.get_active_memory, mx.get_cache_memory, mx.get_peak_memory))
    asked = _ASKED.search(said)
    what = f"{int(asked[1]) / 2**20:.1f} MiB more" if asked else "more memory"
    return (
        f"a step asked for {what} than the Metal device has: {used:.1f} MiB are in use, {kept:.1f} are kept for what comes next, "
        f"and {peak:.1f} were in use at most ({said}). What contexts held is gone. Lower `kv_memory` or `memory` in the "
        "configuration, send shorter prompts, close what else uses the GPU, or take a smaller model"
    )
