"""What lowering an op may look at: the Program, where its values lie, the device's variants, and the step's shape."""

from __future__ import annotations

from dataclasses import dataclass

from pie_edge.backends.cuda.launch import Field, Kernel, Launch, arguments
from pie_edge.backends.cuda.memory import Buffer, Region
from pie_edge.backends.cuda.tuning import Tuning
from pie_edge.backends.shared.lowering import BaseLowering

BLOCK = 256
"""Threads of a block of an elementwise kernel."""


@dataclass(frozen=True)
class Lowering(BaseLowering[Buffer, Tuning]):
    """Inputs are in ``place``, too."""

    def counter(self, name: str) -> Region | None:
        """Where the number of a value's true rows is, if it is counted."""
        word = self.counter_word(name)
        return None if word is None else self.place["counts"].part(4 * word, 4)

    def at(self, *names: str) -> tuple[Region, ...]:
        return tuple(self.place[name] for name in names)

    def by_row(
        self, file: str, name: str, rows: str, items: int, *given: Field | bytes, defines: tuple[str, ...] = ()
    ) -> list[Launch]:
        """A thread for each of ``items`` in every true row of a value; the kernel's last argument is their number."""
        grid = (-(-items // BLOCK), self.rows_of(rows), 1)
        return [Launch(Kernel(file, name, defines), arguments(*given, self.counter(rows)), grid, BLOCK)]
