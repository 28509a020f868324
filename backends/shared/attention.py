"""What launches of ``attention`` are made of, whatever the API: which there are, their shape, and how decodes are split."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from pie_edge.backends.shared.grid import Count, Extent
from pie_edge.backends.shared.lowering import BaseLowering
from pie_edge.backends.shared.tuning import AttentionVariant, Tuning
from pie_edge.errors import Unsupported
from pie_edge.program.encodings import DType
from pie_edge.program.ops import Op

FIELDS = ("counts", "positions", "row_index", "query_starts", "page_starts", "pages", "page_bits", "fresh_bits")
MASKS = ("mask_starts", "mask")
OBSERVED = ("mass_rows", "mass_starts", "mass_layers")
L = TypeVar("L")


@dataclass(frozen=True, slots=True)
class Shape:
    heads: int
    kv_heads: int
    width: int
    page: int
    halves: bool
    vectors: int
    """16-byte vectors of a head."""

    @classmethod
    def of(cls, c: BaseLowering[Any, Any], op: Op) -> Self:
        heads, halves = op.integer("heads"), c.program.values[op.inputs[1]].dtype is DType.F16
        width = c.width(op.inputs[0]) // heads
        return cls(heads, op.integer("kv_heads"), width, op.integer("page_size"), halves, width // (8 if halves else 4))

    @property
    def sharing(self) -> int:
        return self.heads // self.kv_heads

    def together(self, held: int) -> int:
        """Heads of a group that one invocation takes, if it may hold so many values of queries."""
        most = held // self.width
        return max(n for n in range(1, self.sharing + 1) if self.sharing % n == 0 and n <= most)


C = TypeVar("C", bound=BaseLowering[Any, Tuning])


def launches(
    c: C,
    op: Op,
    attend: Callable[[C, Op, Shape, AttentionVariant, bool], L],
    merge: Callable[[C, Op, Shape], L],
    by_row: Callable[[C, Op, Shape], L],
) -> list[L]:
    """Up to three: decodes, what joins their splits, and rows of sequences with several."""
    shape, found = Shape.of(c, op), []
    if c.shape.singles:
        found.append(attend(c, op, shape, c.tuning.decode, True))
        if c.shape.splits:
            found.append(merge(c, op, shape))
    if c.shape.several:
        together = shape.width <= c.tuning.held
        found.append(by_row(c, op, shape) if together else attend(c, op, shape, c.tuning.prefill, False))
    return found


def split(c: BaseLowering[Any, Tuning], shape: Shape, chunk: int) -> int:
    """Keys of a split."""
    if c.tuning.split % shape.page or c.tuning.split % chunk:
        raise Unsupported(f"pages of {shape.page} tokens don't divide a split of {c.tuning.split}; use 8, 16 or 32")
    return c.tuning.split


def splits(c: BaseLowering[Any, Tuning], shape: Shape, keys: int) -> Extent:
    """Splits of the longest sequence: one, unless the step has longer ones."""
    return Count("longest", divisor=keys // shape.page) if c.shape.splits else 1


def masked(op: Op) -> bool:
    return MASKS[0] in op.inputs


def has_sinks(op: Op) -> bool:
    return bool(op.attribute("sinks"))
