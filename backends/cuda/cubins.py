"""Cubins on disk. Each lies behind a digest of its bytes: a driver is told no length, and reads as far as a damaged one says."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from pie_edge.backends.shared.whole_file import write_whole

MOST = 256 << 20
"""Bytes of all: those of some fifty versions of the kernels and architectures. The least recently used go first."""
_DIGEST = 32


class Cubins:
    """Those of a folder, by name. A disk that can't be read or written is no reason to fail. Threads and processes share it."""

    def __init__(self, folder: Path, most: int = MOST) -> None:
        self._folder = folder
        self._most = most

    def read(self, name: str) -> bytes | None:
        """None where it isn't there, or isn't what was written."""
        path = self._folder / name
        with suppress(OSError):
            kept = path.read_bytes()
            digest, cubin = kept[:_DIGEST], kept[_DIGEST:]
            if hashlib.sha256(cubin).digest() == digest:
                with suppress(OSError):
                    os.utime(path)  # used now: file systems often don't note that by themselves
                return cubin
        return None

    def write(self, name: str, cubin: bytes) -> None:
        with suppress(OSError):
            write_whole(self._folder / name, hashlib.sha256(cubin).digest() + cubin)
            self._tidy(name)

    def _tidy(self, written: str) -> None:
        """Down to three quarters where it is too much, so that this is rare. What was just written stays."""
        found = [(entry.stat(), entry) for entry in os.scandir(self._folder) if entry.name != written]
        total = (self._folder / written).stat().st_size + sum(status.st_size for status, _ in found)
        if total <= self._most:
            return
        for status, entry in sorted(found, key=lambda one: one[0].st_mtime_ns):
            if total <= self._most * 3 // 4:
                break
            Path(entry).unlink(missing_ok=True)
            total -= status.st_size
