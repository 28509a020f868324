"""A kernel launch as data: which kernel of which file, its arguments, and how many blocks of how many threads."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TypeAlias

from pie_edge.backends.cuda.memory import Region
from pie_edge.backends.shared.grid import Grid

Field: TypeAlias = Region | int | float | None
"""A pointer, a 32-bit word, a float32, or no pointer."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A function of a file, compiled with these macros. ``text`` is there where the file's text is made at run time."""

    file: str
    name: str
    defines: tuple[str, ...] = ()
    text: str = ""

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.defines)})" if self.defines else self.name


@dataclass(frozen=True, slots=True)
class Tensor:
    """Halves in device memory as Hopper's copying engine is told of them: extents and boxes from the innermost on, whose
    values lie together; the driver makes 128 bytes of it at its launch. A box's rows are 128 bytes, and swizzled."""

    region: Region
    extents: tuple[int, int, int]
    box: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Launch:
    kernel: Kernel
    arguments: tuple[bytes | Tensor, ...]
    grid: Grid
    block: int
    shared: int = 0
    """Bytes of shared memory that the kernel doesn't declare itself."""


def arguments(*values: Field | bytes | Tensor) -> tuple[bytes | Tensor, ...]:
    """Of a launch; bytes are a structure by value."""
    return tuple(value if isinstance(value, bytes | Tensor) else packed(value) for value in values)


def packed(*fields: Field) -> bytes:
    """A structure as C lays it out: pointers at multiples of eight."""
    data, widest = b"", 4
    for field in fields:
        if field is None or not isinstance(field, int | float):
            data += bytes(-len(data) % 8)
            widest = 8
            data += struct.pack("<Q", 0 if field is None else field.buffer.address + field.offset)
        elif isinstance(field, float):
            data += struct.pack("<f", field)
        else:
            data += struct.pack("<I", int(field) & 0xFFFFFFFF)
    return data + bytes(-len(data) % widest) if len(fields) > 1 else data
