"""How many workgroups a launch has, where that depends on the step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Count:
    """A grid's extent that is only known when a step runs: of the ``most`` from ``first`` that the count reaches,
    ``times · ⌈those / divisor⌉``, and ``more`` unless that is none.

    ``name`` is one of the step's true counts: ``rows``, ``sequences``, ``sampled``, ``entries``, or ``longest``, the most
    page entries of a sequence; for a Program whose inputs come by name, ``passes``, the first word of its input ``counts``.
    """

    name: str
    divisor: int = 1
    times: int = 1
    first: int = 0
    most: int = 1 << 32
    more: int = 0

    def value(self, counts: Mapping[str, int]) -> int:
        counted = min(max(counts[self.name] - self.first, 0), self.most)
        return -(-counted // self.divisor) * self.times + (self.more if counted else 0)


Extent = int | Count
Grid = tuple[Extent, Extent, Extent]
"""Workgroups in x, y, z."""


def among(rows: Extent, first: int, count: int, per: int) -> Extent:
    """Workgroups, each for ``per`` rows, for those of the true rows that are among ``count`` from ``first``."""
    if isinstance(rows, Count):
        return replace(rows, first=first, most=count, divisor=per)
    return -(-min(rows - first, count) // per)
