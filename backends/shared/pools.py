"""Which buffers weights go into: large ones have one each, small ones share. Pure arithmetic, so that what loading will take is
counted by the same rules that it follows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pie_edge.backends.shared.placement import aligned
from pie_edge.backends.shared.weights import packing, split_rows
from pie_edge.program.ops import Value

POOL = 32 << 20
"""Bytes of a buffer that small weights share: neighbours can be bound as one."""
TABLES = 64 << 10
"""Room for tables that Programs bring, beside the weights that are expected."""


class Pools:
    """``take`` is asked for regions in the order of loading; ``expected`` bytes are still to come, as far as is known."""

    def __init__(self, most: int, expected: int = 0) -> None:
        self.end = 0
        """Where the last region taken from the current pool ends."""
        self._size = 0
        self._most = most
        self._expected = expected

    def take(self, size: int) -> int:
        """Bytes of the buffer to be made for a region of ``size``, which is aligned; 0 if the current pool has room."""
        if stands_alone(size):
            return size
        self._expected -= size
        self.end += size
        if self.end <= self._size:
            return 0
        # Of what is known to come no more than that; what nobody expected comes in small numbers.
        wanted = self._expected + size if self._expected >= 0 else 1 << 20
        self._size = max(min(wanted, POOL, self._most), size)
        self.end = size
        return self._size

    def close(self) -> None:
        """What comes next begins a pool."""
        self.end = self._size = 0


def stands_alone(size: int) -> bool:
    return size > POOL // 4


def region_sizes(value: Value, interleaved: int, most: int) -> Iterator[int]:
    """The aligned sizes of a weight's regions: one, or one for each part within a binding of ``most`` bytes."""
    assert value.encoding is not None
    if len(value.shape) == 1:
        yield aligned(max(4 * value.shape[0], 16))
        return
    rows, columns = value.shape
    packed = packing(value.encoding, columns, interleaved)
    for _, count in split_rows(rows, packed.rows_within(most)):
        yield aligned(aligned(packed.code_bytes(count)) + packed.scale_bytes(count))


def expected_bytes(weights: Iterable[Value], interleaved: int, most: int) -> int:
    """Of regions that share pools."""
    sizes = (size for value in weights for size in region_sizes(value, interleaved, most))
    return TABLES + sum(size for size in sizes if not stands_alone(size))


def buffer_sizes(weights: Iterable[Value], interleaved: int, most: int) -> Iterator[int]:
    """The buffers that loading these weights makes, in order."""
    values = list(weights)
    pools = Pools(most, expected_bytes(values, interleaved, most))
    for value in values:
        for size in region_sizes(value, interleaved, most):
            if made := pools.take(size):
                yield made
    if values and (made := pools.take(TABLES)):
        yield made
