"""What a backend may know of the machine beside its device."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path


def physical_memory() -> int | None:
    """Bytes of this machine's memory, where the system tells."""
    with suppress(AttributeError, ValueError, OSError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return None


@cache
def processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def unique(names: Iterable[str]) -> list[str]:
    """Names by which each can be asked for: the second of two equal ones is ``NAME (2)``."""
    found: list[str] = []
    for name in names:
        again = sum(other == name or other.startswith(f"{name} (") for other in found)
        found.append(f"{name} ({again + 1})" if again else name)
    return found
