"""What launches of experts are made of, where a workgroup takes rows of one expert."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pie_edge.backends.shared.grid import Count, Extent
from pie_edge.backends.shared.lowering import BaseLowering
from pie_edge.backends.shared.tuning import Tuning
from pie_edge.backends.shared.weights import Packing, Part


def together(c: BaseLowering[Any, Tuning], experts: str, count: int) -> int:
    """Rows of an expert that a workgroup takes: as many as one has on average, where all that there is room for come."""
    average = -(-c.program.values[experts].size // count)
    sizes = [tokens for tokens, variant in c.tuning.linear if not variant.tile]
    return next((tokens for tokens in sizes if tokens >= average), sizes[-1])


def tiles(c: BaseLowering[Any, Any], experts: str, count: int, rows_at_once: int) -> Extent:
    """Rows and their experts, or as many tiles of rows as there may be: each expert may have one that isn't full."""
    rows, chosen, more = c.rows_of(experts), c.width(experts), 0 if rows_at_once == 1 else count
    if isinstance(rows, Count):
        return replace(rows, divisor=rows_at_once, times=chosen, more=more)
    return -(-rows // rows_at_once) * chosen + more


def places(c: BaseLowering[Any, Any], experts: str, count: int, rows_at_once: int) -> tuple[Extent, Extent]:
    """Workgroups in y and z: rows and their experts, or tiles."""
    if rows_at_once == 1:
        return c.rows_of(experts), c.width(experts)
    return tiles(c, experts, count, rows_at_once), 1


def row_groups(packing: Packing, part: Part, outputs: int) -> int:
    """That an expert's rows may lie in: those that aren't whole row groups may reach into one more."""
    lanes = packing.interleaved
    return min(-(-outputs // lanes) + (outputs % lanes != 0), -(-part.rows // lanes))
