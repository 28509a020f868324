"""What a run is given, laid into a slot's block: a step's one packed block field by field, or inputs by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pie_edge.backend import BytesLike
from pie_edge.backends.vulkan.placement import block
from pie_edge.program.ops import Program, Role
from pie_edge.program.step import HEADER_WORDS

Words = NDArray[np.uint32]
Counts = dict[str, int]
_HEADER = ("rows", "sequences", "sampled", "entries")


class Inputs:
    """Fields are bound one by one, and bindings are aligned: in the block on the device each begins anew."""

    def __init__(self, program: Program) -> None:
        values = program.by_role(Role.INPUT)
        self.block = block(values)
        self._name = program.name
        self._sizes = {value.name: value.nbytes for value in values}
        self._from = np.zeros(self.block.nbytes // 4, np.intp)
        """Where each word comes from in the step's block; padding from anywhere."""
        self._page_starts = -1
        start = 0
        for value in values:
            place = self.block.offsets[value.name] // 4
            self._from[place : place + value.size] = np.arange(start, start + value.size)
            self._page_starts = start if value.name == "page_starts" else self._page_starts
            start += value.size
        self._step_words = start

    def fill(self, target: Words, given: Mapping[str, BytesLike]) -> Counts:
        """Write the inputs into a slot, and return the true counts. Raises ValueError for what doesn't fit."""
        return self._fill_step(target, given["step"]) if "step" in given else self._fill_named(target, given)

    def _fill_step(self, target: Words, step: BytesLike) -> Counts:
        words = np.frombuffer(step, np.uint32)
        if len(words) != self._step_words:
            raise ValueError(f"{self._name} takes inputs of {4 * self._step_words} bytes, {4 * len(words)} were given")
        # One gather takes a tenth of what a copy of each field does. The indexes are right: clipping only saves a check.
        np.take(words, self._from, out=target[: len(self._from)], mode="clip")
        counts: Counts = dict(zip(_HEADER, words[:HEADER_WORDS].tolist(), strict=True))
        if self._page_starts >= 0:
            starts = words[self._page_starts : self._page_starts + counts["sequences"] + 1]
            counts["longest"] = int((starts[1:] - starts[:-1]).max(initial=0))
        return counts

    def _fill_named(self, target: Words, given: Mapping[str, BytesLike]) -> Counts:
        room: Any = target.view(np.uint8)
        for name, nbytes in self._sizes.items():
            data = np.frombuffer(given[name], np.uint8) if name in given else np.empty(0, np.uint8)
            if len(data) != nbytes:
                raise ValueError(f"{self._name} takes inputs of {nbytes} bytes as {name}, {len(data)} were given")
            offset = self.block.offsets[name]
            room[offset : offset + nbytes] = data
        passes = target[self.block.offsets["counts"] // 4] if "counts" in self._sizes else 1
        return {"passes": int(passes)}
