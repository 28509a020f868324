"""Where a Program's values lie: inputs and outputs in blocks of their own, temporaries in an arena, the rest as given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pie_edge.backends.shared.region import B, Region
from pie_edge.program.ops import Program, Role, Value

ALIGNMENT = 256
"""Of every value: the largest alignment that a device may ask of a binding."""


@dataclass(frozen=True, slots=True)
class Block:
    """Values one after the other, each aligned."""

    offsets: Mapping[str, int]
    nbytes: int


def block(values: Iterable[Value]) -> Block:
    offsets, end = {}, 0
    for value in values:
        offsets[value.name] = end
        end += aligned(value.nbytes)
    return Block(offsets, end)


def aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def within(value: Value, offset: int, buffer: Region[B]) -> Region[B]:
    """Its region, whole vectors of 16 bytes: what is past it is padding."""
    return buffer.part(offset, -(-value.nbytes // 16) * 16)


def place_block(program: Program, role: Role, where: Block, buffer: Region[B]) -> dict[str, Region[B]]:
    return {v.name: within(v, where.offsets[v.name], buffer) for v in program.by_role(role)}
