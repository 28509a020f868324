"""A file of the cache, written whole or not at all: another process may read it just now, and a disk may be full."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_whole(path: Path, data: bytes) -> None:
    """Replace the file, making its folder if need be. Raises OSError, having left nothing behind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())  # else its new name may outlive a power cut, and its content not
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
