"""A piece of a buffer, whatever the API's buffers are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

B = TypeVar("B")


class Sized(Protocol):
    @property
    def nbytes(self) -> int: ...


SizedT = TypeVar("SizedT", bound=Sized)


@dataclass(frozen=True, slots=True)
class Region(Generic[B]):
    """Bytes ``offset … offset + nbytes`` of a buffer."""

    buffer: B
    offset: int
    nbytes: int

    @property
    def end(self) -> int:
        return self.offset + self.nbytes

    def part(self, offset: int, nbytes: int) -> Region[B]:
        """A region within this one."""
        if offset < 0 or offset + nbytes > self.nbytes:
            raise ValueError(f"bytes {offset} … {offset + nbytes} are not within a region of {self.nbytes}")
        return Region(self.buffer, self.offset + offset, nbytes)

    def overlaps(self, other: Region[B]) -> bool:
        return self.buffer is other.buffer and self.offset < other.end and other.offset < self.end


def span(regions: Sequence[Region[B]]) -> Region[B]:
    """The region from the first one's start to the last one's end, all of one buffer."""
    first, end = min(region.offset for region in regions), max(region.end for region in regions)
    return Region(regions[0].buffer, first, end - first)


def whole(buffer: SizedT) -> Region[SizedT]:
    return Region(buffer, 0, buffer.nbytes)
