"""Parked KV pages on disk: one file each, in a folder of this process that goes with it."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path


class FileSpill:
    """``folder`` may not exist yet; nothing is made before the first page comes."""

    def __init__(self, folder: Path) -> None:
        self._parent = folder
        self._folder: Path | None = None

    def put(self, handle: int, content: bytes) -> None:
        if self._folder is None:
            self._parent.mkdir(parents=True, exist_ok=True)
            self._folder = Path(tempfile.mkdtemp(prefix="parked-", dir=self._parent))
        self._path(handle).write_bytes(content)

    def get(self, handle: int) -> bytes:
        return self._path(handle).read_bytes()

    def drop(self, handle: int) -> None:
        self._path(handle).unlink(missing_ok=True)

    def close(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _path(self, handle: int) -> Path:
        assert self._folder is not None
        return self._folder / str(handle)
