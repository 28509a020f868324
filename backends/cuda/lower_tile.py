"""Launches of products of many rows on tensor cores: x to halves, then one of the two kernels that multiply them."""

from __future__ import annotations

from collections.abc import Sequence

from pie_edge.backends.cuda.launch import Kernel, Launch, Tensor, arguments, packed
from pie_edge.backends.cuda.lowering import Lowering
from pie_edge.backends.cuda.matrices import Use, by_tokens, ends_of, macros, matrices, packing_fields
from pie_edge.backends.cuda.tuning import FEW, ROWS, TILE, WARPS
from pie_edge.backends.shared.weights import BLOCK, Packing
from pie_edge.program.ops import Program

_GROUPS = 2
"""Row groups of a warp: with a gate, one of each matrix."""
_KINDS = ("linear", "linear_group", "gated_linear")
_FLOAT_MINIMUM = 3
_MMA_ROOM, _WGMMA_ROOM = 48 << 10, 192 << 10
"""Bytes of stages at most: so that two blocks share a processor, or that one has it."""
_SWIZZLE = 1024
"""What a stage of boxes is aligned to."""


def is_tiled(packing: Packing) -> bool:
    """What halves hold exactly: codes, whose scales change every 32 columns at most, and halves themselves."""
    return packing.format == "f16" or (packing.quantised and packing.group % BLOCK == 0)


def halved_bytes(program: Program) -> int:
    """What x takes as halves in the widest product of a Program."""
    shapes = [program.values[op.inputs[0]].shape for op in program.ops if op.kind in _KINDS]
    return max((_nbytes(rows, -(-columns // BLOCK)) for rows, columns in shapes if rows > FEW), default=0)


def _nbytes(rows: int, blocks: int) -> int:
    return _padded(rows) * blocks * (4 * BLOCK + 8)


def _padded(rows: int) -> int:
    """Rows of whole tiles, so that kernels read no others."""
    return -(-rows // TILE) * TILE


def tile_launches(c: Lowering, x: str, of: Sequence[Use], act: int) -> list[Launch]:
    """Two: the second has a block for 64 rows of x by 128 rows of weights."""
    packing, computed = of[0].matrix.packing, of[:1] if act else of
    wgmma, rows, plane = (
        c.tuning.tile.wgmma,
        _padded(c.capacity(x)),
        _padded(c.capacity(x)) * packing.blocks * BLOCK * 2,
    )
    high, low, units = (
        c.room.part(0, plane),
        c.room.part(plane, plane),
        c.room.part(2 * plane, rows * packing.blocks * 8),
    )
    to = packed(high, low, units, packing.blocks, rows)
    halve = c.by_row(
        "halve.cu", "halve", x, 8 * packing.blocks, c.place[x], packing.columns, to, defines=(f"SHARED={int(wgmma)}",)
    )
    ends = ends_of(computed, WARPS * (1 if act else _GROUPS))
    told = packed(high, low, units, c.counter(x), c.capacity(x), rows, act, *ends)
    given = arguments(packing_fields(packing), *matrices(of), told)
    name, stage, room, more = "linear_tile", _stage_bytes(packing), _MMA_ROOM, 0
    if wgmma:
        name, stage, room, more = "linear_wgmma", _wgmma_stage_bytes(packing), _WGMMA_ROOM, _SWIZZLE
        both = Tensor(c.room.part(0, 2 * plane), (packing.blocks * BLOCK, rows, 2), (2 * BLOCK, TILE, 2))
        given = (*given, both)
    stages = max(2, min(c.tuning.tile.stages, room // stage))
    kernel = Kernel(f"{name}.cu", name, (*macros(packing), f"STAGES={stages}"))
    grid = (ends[-1], by_tokens(c.rows_of(x), TILE), 1)
    return [*halve, Launch(kernel, given, grid, 32 * WARPS, stages * stage + more)]


def _pieces_bytes(packing: Packing) -> int:
    """What a block's warps have of 32 columns: codes, scales, high bits."""
    words = (2 if packing.scales == _FLOAT_MINIMUM else 1) + packing.high_bits if packing.quantised else 0
    return WARPS * _GROUPS * ROWS * (16 * packing.vectors + 4 * words)


def _stage_bytes(packing: Packing) -> int:
    """The structure ``Stage`` of ``linear_tile.cu``."""
    return TILE * (4 * BLOCK + 8) + _pieces_bytes(packing)


def _wgmma_stage_bytes(packing: Packing) -> int:
    """That of ``linear_wgmma.cu``: two blocks of columns, and a barrier."""
    return -(-(2 * _stage_bytes(packing) + 8) // _SWIZZLE) * _SWIZZLE
