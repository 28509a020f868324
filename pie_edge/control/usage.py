"""What an inferlet used: tokens, passes, pages and slots."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(slots=True)
class Usage:
    """What a space has used so far. Times are seconds of ``time.perf_counter``, 0 before there is one."""

    passes: int = 0
    forwarded_tokens: int = 0
    read_rows: int = 0
    cached_tokens: int = 0
    """Tokens that a shared prefix saved it from forwarding."""
    recomputed_tokens: int = 0
    """Tokens it forwarded again: a shared prefix had held them, and was evicted."""
    evicted_pages: int = 0
    """Pages of shared prefixes that were dropped to make room for it."""
    parked_pages: int = 0
    """Pages of it that went to host memory while it waited."""
    restored_pages: int = 0
    parked_states: int = 0
    """Slots of recurrent state of it that did."""
    restored_states: int = 0
    released_pages: int = 0
    """Pages of it that no token could see any more, being behind every layer's window, and that went back to the pool."""
    predicted: int = 0
    """Passes that run-ahead had prepared when they were asked for."""
    mispredicted: int = 0
    first_result: float = 0.0
    last_result: float = 0.0

    def counts(self) -> dict[str, int]:
        """All but when."""
        return {name: getattr(self, name) for name in _COUNTS}

    def add(self, other: Usage) -> None:
        """Count what another space used, too; not when."""
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))


_COUNTS = [member.name for member in fields(Usage) if not member.name.endswith("_result")]
