"""Where temporaries lie: one arena for all, planned from their lifetimes.

Greedy by decreasing size (Pisarchyk and Lee, "Efficient memory management for deep neural net inference", 2020): the
largest value first, each into the lowest gap between the already placed values that are alive at the same time.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass

from pie_edge.program.ops import Program, Role


@dataclass(frozen=True, slots=True)
class Arena:
    """Byte offset of each temporary, and the size that holds them all."""

    offsets: dict[str, int]
    nbytes: int


def lifetimes(program: Program) -> dict[str, tuple[int, int]]:
    """First and last op index that touches each temporary."""
    spans: dict[str, tuple[int, int]] = {}
    for index, op in enumerate(program.ops):
        for name in (*op.inputs, *op.outputs):
            if program.values[name].role is Role.TEMP:
                spans[name] = (spans.get(name, (index, index))[0], index)
    return spans


def arena(program: Program, alignment: int = 256) -> Arena:
    """Offsets such that no two temporaries alive at one op overlap; each a multiple of ``alignment``."""
    spans = lifetimes(program)
    sizes = {name: -(-program.values[name].nbytes // alignment) * alignment for name in spans}
    offsets: dict[str, int] = {}
    placed: list[tuple[int, int, int, int]] = []  # start, end, first and last op; ascending
    for name in sorted(spans, key=lambda n: (-sizes[n], spans[n], n)):
        first, last = spans[name]
        offset = 0
        for start, end, born, dead in placed:
            if born <= last and first <= dead:
                if start - offset >= sizes[name]:
                    break
                offset = max(offset, end)
        offsets[name] = offset
        bisect.insort(placed, (offset, offset + sizes[name], first, last))
    return Arena(offsets, max((end for _, end, _, _ in placed), default=0))
