"""What this machine is, and how many threads to use."""

from __future__ import annotations

import os

from pie_edge.backends.shared.host import processor

MOST_THREADS = 8
"""Beyond, decoding waits for memory, and more threads bring less than they cost."""


def default_threads() -> int:
    """One for each processor that this process may use, up to eight."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, min(len(os.sched_getaffinity(0)), MOST_THREADS))
    return max(1, min(os.cpu_count() or 1, MOST_THREADS))


def device_name(cores: int) -> str:
    return f"{processor()} ({cores} core{'s' * (cores != 1)})"
