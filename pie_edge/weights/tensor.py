"""What every reader yields: named tensors that point into a mapped file; nothing is read before it is asked for."""

from __future__ import annotations

import contextlib
import math
import mmap
import stat
from dataclasses import dataclass
from pathlib import Path

from pie_edge.errors import BadCheckpoint, ModelNotFound


class Source:
    """One file, mapped for reading. Views of it stay valid after ``close``; the mapping goes when the last one does."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            # A FIFO would block in open and a device has no size: only regular files are models.
            if not stat.S_ISREG(path.stat().st_mode):
                raise BadCheckpoint(
                    f"{path} is not a regular file; give a GGUF or safetensors file or a folder with one"
                )
            with path.open("rb") as file:
                self.size = file.seek(0, 2)
                if self.size == 0:
                    raise BadCheckpoint(f"{path} is empty; fetch or copy it again")
                self.data = mmap.mmap(file.fileno(), self.size, access=mmap.ACCESS_READ)
        except FileNotFoundError:
            raise ModelNotFound(f"{path} does not exist; check the path") from None
        except (OSError, ValueError) as error:  # A path with a null byte is a ValueError.
            raise BadCheckpoint(f"{str(path)!r} can't be read: {error}; check the file and its rights") from error

    def view(self, offset: int, length: int) -> memoryview:
        """Bytes ``offset … offset + length``, without a copy."""
        if offset < 0 or length < 0 or offset + length > self.size:
            raise BadCheckpoint(
                f"{self.path}: bytes {offset}…{offset + length} of {self.size} were asked for; fetch it again"
            )
        return memoryview(self.data)[offset : offset + length]

    def release(self) -> None:
        """Let the system have back what was read: it comes from the file again for whoever looks. Views stay valid."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self.data.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        # A BufferError means that somebody still holds a view: the mapping is freed with the last of them.
        with contextlib.suppress(BufferError):
            self.data.close()


@dataclass(frozen=True, slots=True)
class Span:
    """``length`` bytes of ``source`` from ``offset``."""

    source: Source
    offset: int
    length: int

    def view(self) -> memoryview:
        return self.source.view(self.offset, self.length)

    def part(self, offset: int, length: int) -> Span:
        """A span inside this one."""
        if offset < 0 or length < 0 or offset + length > self.length:
            raise ValueError(f"bytes {offset}…{offset + length} of a span of {self.length}")
        return Span(self.source, self.offset + offset, length)


@dataclass(frozen=True, slots=True)
class Tensor:
    """A named array in a file. ``shape`` is row-major (``[rows, columns]``); ``encoding`` is the file's own name."""

    name: str
    shape: tuple[int, ...]
    encoding: str
    span: Span

    @property
    def columns(self) -> int:
        return self.shape[-1] if self.shape else 1

    @property
    def rows(self) -> int:
        """Rows of the matrix that all leading axes make together."""
        return math.prod(self.shape[:-1])

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.span.length

    @property
    def parts(self) -> tuple[Tensor, ...]:
        """What it is in the file: itself."""
        return (self,)
