"""Weight matrices as kernels are told of them: the structures of ``kernels/weights.cuh``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pie_edge.backends.cuda.launch import packed
from pie_edge.backends.cuda.memory import Region
from pie_edge.backends.cuda.tuning import ROWS
from pie_edge.backends.shared.grid import Count, Extent
from pie_edge.backends.shared.weights import Matrix, Packing, Part

FORMATS = ("affine4", "affine5", "affine6", "affine8", "lookup4", "f16", "bf16", "f32")
"""As ``kernels/weights.cuh`` numbers them."""
_MOST = 3
"""Matrices of a launch."""


def macros(packing: Packing) -> tuple[str, str]:
    return f"FORMAT={FORMATS.index(packing.format)}", f"SCALES={packing.scales}"


def packing_fields(packing: Packing) -> bytes:
    """The structure ``Packing``."""
    table = packing.table or (0, 0, 0, 0)
    return packed(packing.columns, packing.group, packing.scale_words, packing.row_words, *table)


@dataclass(frozen=True, slots=True)
class Use:
    """Rows of a matrix in a launch, and where their products go."""

    matrix: Matrix
    part: Part
    y: Region
    stride: int
    """Of y, in values."""
    bias: Region | None = None

    @property
    def row_groups(self) -> int:
        return -(-self.part.rows // ROWS)

    def fields(self) -> bytes:
        """The structure ``Matrix``."""
        scales = self.part.region.part(self.part.scales, self.part.region.nbytes - self.part.scales)
        zero = self.matrix.packing.zero
        return packed(self.part.region, scales, self.bias, self.y, self.part.rows, self.stride, zero)


def matrices(of: Sequence[Use]) -> list[bytes]:
    """As many as a launch has; the first stands in for those that aren't there."""
    return [use.fields() for use in (*of, *[of[0]] * (_MOST - len(of)))]


def ends_of(of: Sequence[Use], row_groups: int) -> list[int]:
    """Where the blocks of each matrix end that take so many row groups."""
    ends: list[int] = []
    for use in of:
        ends.append((ends[-1] if ends else 0) + -(-use.row_groups // row_groups))
    return ends + ends[-1:] * (_MOST - len(ends))


def by_tokens(rows: Extent, tokens: int) -> Extent:
    return replace(rows, divisor=tokens) if isinstance(rows, Count) else -(-rows // tokens)
