"""Launches of products of many rows on tensor cores: x to halves, then one of the two kernels that multiply them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from pie_edge.backends.cuda.launch import Kernel, Launch, Tensor, arguments, packed
from pie_edge.backends.cuda.lowering import Lowering
from pie_edge.backends.cuda.matrices import Use, by_tokens, ends_of, macros, matrices, packing_fields
from pie_edge.backends.cuda.tuning import FEW, ROWS, TILE, WARPS, Tuning
from pie_edge.backends.shared.weights import BLOCK, Packing, packing
from pie_edge.program.ops import Program

_GROUPS = 2
"""Row groups of a warp: with a gate, one of each matrix."""
_KINDS = ("linear", "linear_group", "gated_linear")
_HALF, _FLOAT_MINIMUM = 0, 3
"""Of what ``kernels/weights.cuh`` calls SCALES."""
_MMA_ROOM, _WGMMA_ROOM = 48 << 10, 192 << 10
"""Bytes of stages at most: so that two blocks share a processor, or that one has it."""
_SWIZZLE = 1024
"""What a stage of boxes is aligned to."""


def is_tiled(packing: Packing, tuning: Tuning) -> bool:
    """Codes and halves everywhere, bfloat16 where tensor cores take it; float32 nowhere."""
    return packing.quantised or packing.format == "f16" or (packing.format == "bf16" and tuning.tiled_bf16)


@dataclass(frozen=True, slots=True)
class _Split:
    """How values of x lie for products with a matrix: parts of 16 bits, and for each stretch of columns a factor and a sum."""

    parts: int
    stretches: int
    """Of a block."""
    blocks: int

    @classmethod
    def beside(cls, packing: Packing) -> Self:
        return cls(3 if packing.format == "bf16" else 2, BLOCK // min(packing.group, BLOCK), packing.blocks)

    @property
    def plain(self) -> bool:
        """As wgmma's kernel takes them too."""
        return (self.parts, self.stretches) == (2, 1)

    def plane(self, rows: int) -> int:
        """Bytes of a part of each value."""
        return rows * self.blocks * BLOCK * 2

    def nbytes(self, rows: int) -> int:
        return self.parts * self.plane(rows) + rows * self.blocks * self.stretches * 8

    def defines(self) -> tuple[str, ...]:
        """Of ``halve.cu``, beside the order."""
        return (*("PARTS=3",) * (self.parts == 3), *self.sixteens())

    def sixteens(self) -> tuple[str, ...]:
        """Of the kernel that multiplies, beside what the packing says."""
        return ("SIXTEENS=1",) * (self.stretches == 2)


def halved_bytes(program: Program) -> int:
    """What x takes in the widest product of many rows of a Program."""
    found = 0
    for op in program.ops:
        if op.kind in _KINDS:
            x, weight = (program.values[name] for name in op.inputs[:2])
            if x.shape[0] > FEW and weight.encoding is not None:
                own = packing(weight.encoding, x.shape[1], ROWS)
                found = max(found, _Split.beside(own).nbytes(_padded(x.shape[0])))
    return found


def _padded(rows: int) -> int:
    """Rows of whole tiles, so that kernels read no others."""
    return -(-rows // TILE) * TILE


def tile_launches(c: Lowering, x: str, of: Sequence[Use], act: int) -> list[Launch]:
    """Two: the second has a block for 64 rows of x by 128 rows of weights."""
    own, computed = of[0].matrix.packing, of[:1] if act else of
    split, rows = _Split.beside(own), _padded(c.capacity(x))
    wgmma, plane = c.tuning.tile.wgmma and split.plain, split.plane(rows)
    parts = c.room.part(0, split.parts * plane)
    units = c.room.part(parts.nbytes, split.nbytes(rows) - parts.nbytes)
    to = packed(parts, units, own.blocks, rows)
    order = (f"SHARED={int(wgmma)}", *split.defines())
    halve = c.by_row("halve.cu", "halve", x, 8 * own.blocks, c.place[x], own.columns, to, defines=order)
    ends = ends_of(computed, WARPS * (1 if act else _GROUPS))
    told = packed(parts, units, c.counter(x), c.capacity(x), rows, act, *ends)
    given = arguments(packing_fields(own), *matrices(of), told)
    name, stage, room, more = "linear_tile", _stage_bytes(own), _MMA_ROOM, 0
    if wgmma:
        name, stage, room, more = "linear_wgmma", _wgmma_stage_bytes(own), _WGMMA_ROOM, _SWIZZLE
        both = Tensor(parts, (own.blocks * BLOCK, rows, 2), (2 * BLOCK, TILE, 2))
        given = (*given, both)
    stages = max(2, min(c.tuning.tile.stages, room // stage))
    kernel = Kernel(f"{name}.cu", name, (*macros(own), f"STAGES={stages}", *split.sixteens()))
    grid = (ends[-1], by_tokens(c.rows_of(x), TILE), 1)
    return [*halve, Launch(kernel, given, grid, 32 * WARPS, stages * stage + more)]


def _pieces_bytes(packing: Packing) -> int:
    """What a block's warps have of 32 columns: codes, scales, high bits."""
    words = _scale_words(packing) + packing.high_bits if packing.quantised else 0
    return WARPS * _GROUPS * ROWS * (16 * packing.vectors + 4 * words)


def _scale_words(packing: Packing) -> int:
    """Of a row's 32 columns. Halves without minima are two to a word."""
    stretches = _Split.beside(packing).stretches
    return {_HALF: 1, _FLOAT_MINIMUM: 2 * stretches}.get(packing.scales, stretches)


def _stage_bytes(packing: Packing) -> int:
    """The structure ``Stage`` of ``linear_tile.cu``."""
    split = _Split.beside(packing)
    return TILE * (2 * split.parts * BLOCK + 8 * split.stretches) + _pieces_bytes(packing)


def _wgmma_stage_bytes(packing: Packing) -> int:
    """That of ``linear_wgmma.cu``: two blocks of columns, and a barrier."""
    return -(-(2 * _stage_bytes(packing) + 8) // _SWIZZLE) * _SWIZZLE
