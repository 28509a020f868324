"""What the interpreter in ``kernels/crew.c`` reads: instructions of 128 bytes, and where one has to wait for those before it."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

KERNELS = (
    *("add", "mul", "mul_rows", "scale", "softcap", "activation", "glu", "rms_norm", "add_rms_norm"),
    *("layer_norm", "rope_angles", "rope", "kv_append", "attention", "attention_merge", "attention_mass"),
    *("prepare_affine", "prepare_dense", "linear_affine", "linear_dense", "embed", "gather_rows", "store"),
    *("copy_pages", "copy_slots", "repack", "adapter_linear", "short_conv", "tail_append", "gated_delta"),
    *("clamped_glu", "route", "sort_by_expert", "prepare_experts"),
    *("expert_linear_affine", "expert_linear_dense", "combine_experts"),
)
"""By number, the order of ``kernels/kernels.c``."""

INSTRUCTION_BYTES = 128
HEADER_BYTES = 128
MOST_ARGUMENTS = 27


@dataclass(frozen=True, slots=True)
class Ref:
    """The address of a named value, plus ``offset`` bytes."""

    name: str
    offset: int = 0


Argument = Ref | int | float


@dataclass(frozen=True, slots=True)
class Instruction:
    """A kernel with the fields of its argument struct, in order; the values that it reads and writes, by name."""

    kernel: str
    arguments: tuple[Argument, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    scratch: int = 0
    """Bytes of working memory that each thread needs."""


@dataclass(frozen=True, slots=True)
class Span:
    """Where a value lies: ``[offset, offset + nbytes)``."""

    offset: int
    nbytes: int

    def meets(self, other: Span) -> bool:
        return self.offset < other.offset + other.nbytes and other.offset < self.offset + self.nbytes


def waits(instructions: Sequence[Instruction], spans: Mapping[str, Span]) -> list[bool]:
    """Whether each must wait until those before it are complete.

    It must where it reads memory that was written since the last wait, or writes memory that was read or written.
    """
    found: list[bool] = []
    read: list[Span] = []
    written: list[Span] = []
    for instruction in instructions:
        reads = [spans[name] for name in instruction.reads]
        writes = [spans[name] for name in instruction.writes]
        before = [(a, b) for a in written for b in (*reads, *writes)] + [(a, b) for a in read for b in writes]
        wait = any(a.meets(b) for a, b in before)
        if wait:
            read, written = [], []
        read += reads
        written += writes
        found.append(wait)
    return found


def encode(instructions: Sequence[Instruction], spans: Mapping[str, Span], scratch: int, scratch_stride: int) -> bytes:
    """The program as it lies in memory. ``scratch`` is the first thread's working memory."""
    parts = [struct.pack("<III116x", len(instructions), scratch, scratch_stride)]
    for instruction, wait in zip(instructions, waits(instructions, spans), strict=True):
        head = struct.pack("<IIIII", KERNELS.index(instruction.kernel), wait, 0, 0, 0)
        words = b"".join(_word(argument, spans) for argument in instruction.arguments)
        if len(words) > 4 * MOST_ARGUMENTS:
            raise ValueError(f"{instruction.kernel} has {len(words) // 4} arguments, {MOST_ARGUMENTS} fit")
        parts.append((head + words).ljust(INSTRUCTION_BYTES, b"\0"))
    return b"".join(parts)


def _word(argument: Argument, spans: Mapping[str, Span]) -> bytes:
    if isinstance(argument, Ref):
        return struct.pack("<I", spans[argument.name].offset + argument.offset)
    if isinstance(argument, float):
        return struct.pack("<f", argument)
    return struct.pack("<I", argument)
