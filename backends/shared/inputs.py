"""What a run is given, laid into a slot's mapped memory: a step's one packed block as it comes, or inputs by name.

In a slot they lie one after the other; on the device each begins anew, because bindings are aligned: the command buffer's
copy sets them apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import sub

from pie_edge.backend import BytesLike
from pie_edge.backends.shared.placement import block
from pie_edge.backends.shared.shapes import HEADER
from pie_edge.program.ops import Program, Role
from pie_edge.program.step import HEADER_WORDS

Counts = dict[str, int]
_WORD = 4


@dataclass(frozen=True, slots=True)
class Field:
    """An input: where it lies in a slot, where on the device, in bytes."""

    name: str
    start: int
    place: int
    nbytes: int


class Inputs:
    """``nbytes`` of a slot hold them; ``block`` is where they are on the device."""

    def __init__(self, program: Program) -> None:
        values = program.by_role(Role.INPUT)
        self.block = block(values)
        self.fields: list[Field] = []
        self._name = program.name
        end = 0
        for value in values:
            self.fields.append(Field(value.name, end, self.block.offsets[value.name], value.nbytes))
            end += -(-value.nbytes // _WORD) * _WORD
        self.nbytes = end
        starts = {field.name: field.start for field in self.fields}
        self._page_starts = starts["page_starts"] // _WORD if "page_starts" in starts else None
        self._counted = "counts" in starts

    def fill(self, room: memoryview, given: Mapping[str, BytesLike]) -> Counts:
        """Write the inputs into a slot, and return the true counts. Raises ValueError for what doesn't fit."""
        return self._fill_step(room, given["step"]) if "step" in given else self._fill_named(room, given)

    def _fill_step(self, room: memoryview, step: BytesLike) -> Counts:
        data = memoryview(step).cast("B")
        if len(data) != self.nbytes:
            raise ValueError(f"{self._name} takes inputs of {self.nbytes} bytes, {len(data)} were given")
        room[: self.nbytes] = data
        words = data.cast("I")
        counts: Counts = dict(zip(HEADER, words[:HEADER_WORDS].tolist(), strict=True))
        if self._page_starts is not None:
            starts = words[self._page_starts : self._page_starts + counts["sequences"] + 1].tolist()
            counts["longest"] = max(map(sub, starts[1:], starts), default=0)
        return counts

    def _fill_named(self, room: memoryview, given: Mapping[str, BytesLike]) -> Counts:
        for field in self.fields:
            data = memoryview(given.get(field.name, b"")).cast("B")
            if len(data) != field.nbytes:
                raise ValueError(
                    f"{self._name} takes inputs of {field.nbytes} bytes as {field.name}, {len(data)} were given"
                )
            room[field.start : field.start + field.nbytes] = data
        return {"passes": int.from_bytes(memoryview(given["counts"])[:_WORD], "little") if self._counted else 1}
