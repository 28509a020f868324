"""What one instance may use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """``memory`` is bytes of the Wasm memory; ``time`` is seconds of the wall clock, 0 for no limit."""

    memory: int = 256 * 2**20
    time: float = 0.0
    message: int = 2**20
    """Characters of the longest message to or from the client."""
    unread: int = 16 * 2**20
    """Characters in messages that the client hasn't taken yet."""
    source: int = 4 * 2**20
    """Bytes of one file of an inferlet's source."""
