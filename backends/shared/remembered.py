"""What is found out about a device once and kept on disk, by device, driver and kernels: that they compute right, and the best
variants. Anything that can't be read, or that somebody has changed, is found out again."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from pie_edge.backends.shared.whole_file import write_whole
from pie_edge.errors import BackendError


@dataclass(frozen=True, slots=True)
class Subject:
    """What is found out holds for this, and for nothing else."""

    backend: str
    device: str
    driver: str
    """Changes with whatever compiles the kernels."""
    kernels: str
    """A digest of them."""


class Record:
    """A small JSON document about a device with its driver and these kernels. Without a folder nothing is kept."""

    def __init__(self, subject: Subject, folder: Path | None, kind: str, detail: str = "") -> None:
        key = hashlib.sha256("\0".join((subject.device, subject.driver, subject.kernels, detail)).encode()).hexdigest()
        self.folder = folder
        self._device = subject.device
        self._path = None if folder is None else folder / f"{subject.backend}-{key[:16]}.{kind}"

    def read(self) -> dict[str, Any] | None:
        if self._path is not None:
            with suppress(OSError, ValueError):
                found = json.loads(self._path.read_text(encoding="utf-8"))
                if isinstance(found, dict) and found.pop("digest", "") == _digest(found):
                    return found
        return None

    def lasts(self) -> bool:
        """Whether what is written will be there at the next start: whether a file can be made where it goes."""
        if self.folder is None:
            return False
        with suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            with TemporaryFile(dir=self.folder):
                return True
        return False

    def how_often(self) -> str:
        """How often it is found out, in words: once, where it can be kept."""
        return "once" if self.lasts() else f"at every start: {self.folder or 'no cache folder'} can't be written"

    def write(self, document: dict[str, Any]) -> None:
        """Keep it if that can be done: a disk that can't be written is no reason to fail."""
        with suppress(OSError):
            self._put(document)

    def check(self) -> None:
        """Raises BackendError where it couldn't be kept: to be asked before much is done to find it out."""
        if not self.lasts():
            raise self._unkept("it can't be written")

    def keep(self, document: dict[str, Any]) -> None:
        """All or nothing. Raises BackendError."""
        try:
            self._put(document)
        except OSError as error:
            raise self._unkept(error.strerror or str(error)) from error

    def _put(self, document: dict[str, Any]) -> None:
        if self._path is not None:
            write_whole(self._path, json.dumps(document | {"digest": _digest(document)}).encode())

    def _unkept(self, why: str) -> BackendError:
        return BackendError(
            f"what is found out about {self._device} can't be kept in {self.folder or 'no folder'} ({why}); nothing has changed. "
            "Make that folder writable, or name another one with PIE_EDGE_CACHE"
        )


def _digest(document: dict[str, Any]) -> str:
    """A number that was damaged makes no kernel of another shape."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
