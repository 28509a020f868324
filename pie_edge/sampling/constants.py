"""Numbers written in an epilogue. A constant has no type of its own: it takes that of the tensor it meets."""

from __future__ import annotations

import struct
from collections.abc import Set
from dataclasses import dataclass

from pie_edge.program.node_shapes import NodeError
from pie_edge.program.node_types import Element

Number = int | float | bool

_RANGES = {Element.I32: (-(2**31), 2**31 - 1), Element.U32: (0, 2**32 - 1)}


@dataclass(frozen=True, slots=True)
class Constant:
    value: Number

    def natural(self, allowed: Set[Element]) -> Element:
        """The type it takes where nothing else decides: the first that can hold it of bool, i32, u32, f32."""
        for element in (Element.BOOL, Element.I32, Element.U32, Element.F32):
            if element in allowed and self._held_by(element):
                return element
        raise NodeError(f"the constant {self.value} can't be {' or '.join(sorted(allowed))}")

    def as_type(self, element: Element) -> Number:
        """Its value in this type; float32 is rounded, so that equal epilogues have equal digests."""
        if not self._held_by(element):
            raise NodeError(f"the constant {self.value} meets {element}, which can't hold it; cast the tensor first")
        return float(struct.unpack("<f", struct.pack("<f", self.value))[0]) if element is Element.F32 else self.value

    def _held_by(self, element: Element) -> bool:
        if isinstance(self.value, bool) or element is Element.BOOL:
            return isinstance(self.value, bool) and element is Element.BOOL
        if element is Element.F32:
            return True
        low, high = _RANGES[element]
        return isinstance(self.value, int) and low <= self.value <= high
