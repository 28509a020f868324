"""What one instance may use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """``memory`` is bytes of the Wasm memory; ``time`` is seconds of the wall clock, 0 for no limit."""

    memory: int = 256 * 2**20
    time: float = 0.0
    message: int = 2**20
    """Characters of the longest message to or from the client, and of one to a topic."""
    unread: int = 16 * 2**20
    """Characters in messages that the client hasn't taken yet."""
    file: int = 64 * 2**20
    """Bytes of the longest file to or from the client, and of all that the inferlet hasn't taken yet."""
    backlog: int = 2**20
    """Characters in messages of one subscription that the inferlet hasn't taken yet."""
    source: int = 4 * 2**20
    """Bytes of one file of an inferlet's source."""
    children: int = 64
    """Inferlets started by this one that are alive at once."""
    generations: int = 8
    """How deep children may start children."""
    http: tuple[str, ...] = ()
    """Hosts that may be asked, ``HOST`` or ``HOST:PORT``; ``*`` is any."""
    http_time: float = 60.0
    """Seconds of one request, redirects included."""
    http_body: int = 8 * 2**20
    """Bytes of an answer's body."""
    http_at_once: int = 32
    """Requests under way."""
