"""Texts to tokens for a guest, without holding up the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from pie_edge.errors import ResourceError
from pie_edge.host.guest import Guest

Tokens = list[int] | asyncio.Future[list[int]]
_SHORT = 2048  # characters that are encoded in less than a millisecond


def encoded(guest: Guest, text: str, work: Callable[[], Sequence[int]]) -> Tokens:
    """What ``work`` makes of ``text``; of a long one on another thread, since a million characters take a second in which no
    other inferlet would have a turn."""
    if len(text) > guest.limits.message:
        raise ResourceError(
            f"{guest.name} encodes {len(text):,} characters at once, the most is {guest.limits.message:,}; shorten it, "
            "or encode it in parts"
        )
    if len(text) <= _SHORT:
        return list(work())
    pending = asyncio.get_running_loop().run_in_executor(None, lambda: list(work()))
    pending.add_done_callback(lambda _: guest.wake())
    return pending
