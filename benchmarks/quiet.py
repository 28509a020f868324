"""Waiting for the machine to have nothing else to do: a peer whose threads spin suffers most from company."""

from __future__ import annotations

import sys
import time
from pathlib import Path

STAT = Path("/proc/stat")
IDLE = 0.9
WINDOW = 0.3
"""Seconds over which the processors must have been idle."""


def wait(limit: float) -> bool:
    """Until all processors are idle, for at most ``limit`` seconds; whether they were. True where the system doesn't say."""
    end = time.monotonic() + limit
    while (idle := idle_share(WINDOW)) is not None and idle < IDLE:
        if time.monotonic() >= end:
            return False
    return True


def idle_share(seconds: float) -> float | None:
    """How much of all processors' time was idle in the next ``seconds``; None where the system doesn't say."""
    if not STAT.exists():
        return None
    before = _ticks()
    time.sleep(seconds)
    spent = [after - earlier for after, earlier in zip(_ticks(), before, strict=True)]
    return (spent[3] + spent[4]) / max(sum(spent), 1)


def _ticks() -> list[int]:
    """user, nice, system, idle, iowait, …"""
    return [int(word) for word in STAT.read_text(encoding="ascii").split("\n", 1)[0].split()[1:]]


class Patience:
    """Waits before each measurement, and counts those that had company all the same."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.disturbed = 0

    def __call__(self) -> None:
        if self.limit > 0 and not wait(self.limit):
            self.disturbed += 1

    def tell(self) -> None:
        if self.disturbed:
            print(
                f"{self.disturbed} measurements had company: the machine was never idle for long enough",
                file=sys.stderr,
            )
