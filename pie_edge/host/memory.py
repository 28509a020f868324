"""How many inferlets the machine's memory has room for."""

from __future__ import annotations

import os

GUEST = 10 * 2**20
"""Bytes that an inferlet takes: CPython in Wasm with the SDK, and what one request makes of it."""
MOST = 1000
_SHARE = 2
"""Of the memory that is free at the start, inferlets get one part in so many: pages and weights need the rest."""


def room(share: int = _SHARE, most: int = MOST) -> int:
    """So many inferlets fit into one part in ``share`` of what is free; ``most`` on a platform that doesn't say."""
    free = _free_memory()
    return most if free is None else max(1, min(most, free // share // GUEST))


def _free_memory() -> int | None:
    """Bytes, or None on a platform that doesn't say."""
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None
