"""Which places of a context have no keys any more: plain intervals, and what slicing, rewriting and taking out make of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Gone(NamedTuple):
    """Places ``first … end`` whose keys were released. Their positions are ``moved`` more than their places."""

    first: int
    end: int
    moved: int = 0


def part_of(gone: Sequence[Gone], first: int, end: int) -> list[Gone]:
    """What is gone of places ``first … end`` of a context, as a context sees it that consists of these."""
    found = []
    for one in gone:
        start, stop = max(one.first, first), min(one.end, end)
        if start < stop:
            found.append(Gone(start - first, stop - first, one.moved + first))
    return found


def without(gone: Sequence[Gone], first: int, end: int, *, closing: bool = False) -> list[Gone]:
    """What is gone once places ``first … end`` are written anew; or taken out, and those after them move down."""
    down = end - first if closing else 0
    after = [Gone(one.first - down, one.end - down, one.moved + down) for one in part_after(gone, end)]
    return part_of(gone, 0, first) + after


def part_after(gone: Sequence[Gone], place: int) -> list[Gone]:
    """What is gone from a place on, where it is."""
    return [one if one.first >= place else Gone(place, one.end, one.moved) for one in gone if one.end > place]
