"""Sequences of a step as ops with recurrent state see them."""

from __future__ import annotations

from dataclasses import astuple, dataclass

import mlx.core as mx
import numpy as np

from pie_edge.backends.metal.context import Context
from pie_edge.program.ops import Op


@dataclass(frozen=True, slots=True)
class Talk:
    """One sequence: its rows, and where its state lies (``StepInputs`` says what each is)."""

    first: int
    rows: int
    source: int
    home: int
    fold: int
    start: int
    replayed: int
    folded: int

    def last(self, length: int) -> tuple[int, np.ndarray]:
        """The first of its last ``length`` rows, and the tail's row of each of them."""
        count = min(length, self.rows)
        return self.first + self.rows - count, (self.start + self.rows - count + np.arange(count)) % length

    def before(self, tail: mx.array, count: int) -> mx.array:
        """[count, C]: the ``count`` tokens before its first row, from the tail; zeros before the context began."""
        places = self.start - count + np.arange(count)
        rows = mx.take(tail[self.home], mx.array((places % tail.shape[1]).astype(np.uint32)), axis=0)
        return mx.where(mx.array(places >= 0)[:, None], rows, 0.0)


def talks(c: Context, op: Op) -> list[Talk]:
    fields = c.fields(op)
    starts = fields["query_starts"].tolist()
    numbers = np.concatenate([fields["state_slots"], fields["state_spans"]], axis=1).tolist()
    return [
        Talk(first, last - first, *given) for first, last, given in zip(starts[:-1], starts[1:], numbers, strict=True)
    ]


def table(c: Context, op: Op) -> mx.array:
    """[S, 8] of i32: the sequences as kernels take them."""

    def made() -> mx.array:
        numbers = [astuple(talk) for talk in talks(c, op)]
        return mx.array(np.array(numbers, np.int32))

    return c.once("talks", made)
