"""Small values that go from one pass to another without leaving the device.

A *cell* is written once: by the epilogue of a pass, or by the host. While its writer is on the device its words are in slots
of the device's pool, where passes that run after it find them; once the writer has landed they are here, and later readers
are given them like anything else. So slots are held only between launch and landing, and a cell that got none delays its
readers, never blocks them.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from pie_edge.errors import PieError
from pie_edge.program.node_types import Element, TensorType


@dataclass(slots=True, eq=False)
class Cell:
    """Pending at first; then it has a ``value``, the memory of its elements, or an ``error``: its writer's.

    ``size`` is how many entries of 32 bits it has, ``line`` where the author made it, as the beginning of a message.
    """

    type: TensorType
    size: int
    line: str = ""
    slots: tuple[int, ...] = ()
    """Of its entries, while its writer is on the device; empty otherwise, and where there was no room."""
    value: bytes | None = None
    error: PieError | None = None
    _waiting: list[asyncio.Future[bytes]] | None = None

    @property
    def ready(self) -> bool:
        """Whether a pass that is launched now would find it, or what became of it."""
        return bool(self.slots) or not self.pending

    @property
    def pending(self) -> bool:
        return self.value is None and self.error is None

    def set(self, data: bytes) -> None:
        """It is known. Once settled, it stays as it is."""
        if self.pending:
            self.value = data
            self._tell()

    def fail(self, error: PieError) -> None:
        """It won't be known."""
        if self.pending:
            self.error = error
            self._tell()

    def wait(self) -> asyncio.Future[bytes]:
        """Its value, when that is here, or its error."""
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting = [*(self._waiting or ()), future]
        if not self.pending:
            self._tell()
        return future

    def _tell(self) -> None:
        waiting, self._waiting = self._waiting, None
        for future in waiting or ():
            if future.done():
                continue
            if self.value is not None:
                future.set_result(self.value)
            elif self.error is not None:
                future.set_exception(self.error)
                future.exception()  # a caller that has gone doesn't make asyncio complain


def words_of_host(count: int) -> Cell:
    """Whole numbers of 32 bits in a row, which the host will give."""
    return Cell(TensorType(Element.U32, (count,)), count)


@dataclass(slots=True)
class Taken:
    """A token that is an entry of a cell."""

    cell: Cell
    index: int

    @property
    def token(self) -> int | None:
        """As a word without a sign, which may be any; None where it isn't known, or never will be."""
        value, begin = self.cell.value, 4 * self.index
        return None if value is None else int.from_bytes(value[begin : begin + 4], sys.byteorder)

    @property
    def source(self) -> int:
        token = self.token
        return -1 - self.cell.slots[self.index] if token is None else token


Token = int | Taken


def sources_of(tokens: Sequence[Token]) -> list[int]:
    """What a step has for each: the token, or −1 − the slot that it will be in."""
    return [one if isinstance(one, int) else one.source for one in tokens]


def number_of(token: Token) -> int | None:
    """None where it isn't known."""
    return token if isinstance(token, int) else token.token


def known(tokens: Sequence[Token]) -> list[int] | None:
    """The tokens as numbers, if all of them are known."""
    found = [one if isinstance(one, int) else one.token for one in tokens]
    return None if None in found else [one for one in found if one is not None]


def known_part(tokens: Sequence[Token]) -> list[int]:
    """The first of the tokens, as far as they are known."""
    found: list[int] = []
    for one in tokens:
        token = one if isinstance(one, int) else one.token
        if token is None:
            break
        found.append(token)
    return found


class Slots:
    """The words of the device's pool that are free."""

    def __init__(self, count: int) -> None:
        self.total = count
        self._free = list(range(count))

    @property
    def free(self) -> int:
        return len(self._free)

    def hold(self, cell: Cell) -> None:
        """Before its writer is launched. It gets none where there are too few."""
        size, free = cell.size, self._free
        if cell.slots or size > len(free) or not cell.pending:
            return
        if size == 1:
            cell.slots = (free.pop(),)
            return
        cell.slots = tuple(free[-size:])
        del free[-size:]

    def release(self, cell: Cell) -> None:
        """Its writer has landed: the device works in order, so readers that were launched come before whoever is next."""
        self._free += cell.slots
        cell.slots = ()
