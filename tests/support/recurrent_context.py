"""One context's recurrent state as a control layer keeps it: tokens can be taken back as far as the tail reaches."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pie_edge.program.step import StepInputs


@dataclass
class RecurrentContext:
    """``home`` holds the state after ``head`` tokens, and ``fold`` an earlier one, after ``folded`` tokens."""

    reversible: int
    """Tokens that can be taken back: the tail's, less those that a convolution reaches back."""
    home: int = 1
    fold: int = 2
    head: int = 0
    folded: int = 0

    def place(self, start: int, end: int) -> tuple[list[int], list[int]]:
        """The ``state_slots`` and ``state_spans`` of a pass over the tokens ``start`` … ``end``."""
        assert self.folded <= start <= self.head, f"{start} isn't between {self.folded} and {self.head}"
        source, base = (self.home if start else 0), start
        target = max(self.folded, end - self.reversible)
        # What is to be folded may lie before what the home's state is after: run those tokens again.
        if start < self.head or self.folded < target < start:
            source, base = (self.fold if self.folded else 0), self.folded
        fold = self.fold if target > self.folded else 0
        self.head, self.folded = end, target
        return [source, self.home, fold], [start, start - base, target - base if fold else 0]

    def step(self, step: StepInputs) -> StepInputs:
        """A step of this context alone, told where its state is."""
        slots, spans = self.place(step.row_index[0], step.row_index[-1] + 1)
        return replace(step, state_slots=slots, state_spans=spans)
