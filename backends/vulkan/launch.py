"""A kernel launch as data: which shader with which constants, what it is bound to, and how many workgroups.

Whoever lowers a Program to launches (model ops, presets, traced epilogues) knows nothing of command buffers; recording
launches (``record.py``) knows nothing of ops.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import Enum, Flag, auto
from functools import cached_property

from pie_edge.backends.shared.grid import Count, Grid
from pie_edge.backends.shared.words import words
from pie_edge.backends.vulkan.memory import Region


@dataclass(frozen=True)
class Module:
    """A compute shader in SPIR-V with the entry point ``main``: its buffers are bindings 0 … n − 1 of set 0."""

    name: str
    code: bytes = field(repr=False)

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.code).hexdigest()


@dataclass(frozen=True)
class Kernel:
    """A module specialised: ``constants`` are the values of specialization constants 0, 1, …

    Equal kernels are one pipeline.
    """

    module: Module
    constants: tuple[int | float | bool, ...] = ()

    @cached_property
    def key(self) -> tuple[str, bytes]:
        return self.module.digest, self.data

    @cached_property
    def data(self) -> bytes:
        """The constants as they are given to the driver, one word each."""
        return words(*self.constants)

    def __str__(self) -> str:
        return f"{self.module.name}({', '.join(map(str, self.constants))})"


class Access(Flag):
    READ = auto()
    WRITE = auto()
    BOTH = READ | WRITE


class Texels(Enum):
    """How a kernel reads a region as texels, by the number of the format."""

    WORDS = 98
    """One 32-bit word."""
    FOURS = 107
    """Four words."""
    FLOATS = 109
    """Four floats."""


@dataclass(frozen=True, slots=True)
class Binding:
    """A storage buffer of a launch, or a buffer of texels. What the kernel does to it decides where barriers are."""

    region: Region
    access: Access = Access.READ
    texels: Texels | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    kernel: Kernel
    bindings: tuple[Binding, ...]
    grid: Grid
    """With a Count in it a launch is dispatched indirectly."""
    push: bytes = b""
    """Push constants, whole words."""
    name: str = ""
    """What profiles call it; the kernel's own name if empty."""

    @property
    def indirect(self) -> bool:
        return any(isinstance(extent, Count) for extent in self.grid)
