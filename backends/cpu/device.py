"""What this machine is: its processor's name, its memory, how many threads to use."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from functools import cache
from pathlib import Path

MOST_THREADS = 8
"""Beyond, decoding waits for memory, and more threads bring less than they cost."""


def default_threads() -> int:
    """One for each processor that this process may use, up to eight."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, min(len(os.sched_getaffinity(0)), MOST_THREADS))
    return max(1, min(os.cpu_count() or 1, MOST_THREADS))


@cache
def processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def device_name(cores: int) -> str:
    return f"{processor()} ({cores} core{'s' * (cores != 1)})"
