"""Launches of what multiplies or looks up rows of a weight matrix: by the parts of a weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pie_edge.backends.cuda.launch import Kernel, Launch, arguments, packed
from pie_edge.backends.cuda.lowering import Lowering
from pie_edge.backends.cuda.memory import Region
from pie_edge.backends.cuda.tuning import ROWS, TILE, WARPS
from pie_edge.backends.shared.grid import Count, Extent
from pie_edge.backends.shared.lowering import ACTIVATIONS
from pie_edge.backends.shared.weights import BLOCK, Matrix, Packing, Part
from pie_edge.program.ops import Op

FORMATS = ("affine4", "affine5", "affine6", "affine8", "lookup4", "f16", "bf16", "f32")
"""As ``kernels/weights.cuh`` numbers them."""
MOST_MATRICES = 3


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


def uses(c: Lowering, name: str, output: str, bias: str | None) -> list[Use]:
    """Of each part of a matrix."""
    matrix, y = c.matrix(name), c.place[output]
    found = []
    for part in matrix.parts:
        shifted = y.part(4 * part.first, y.nbytes - 4 * part.first)
        own = None if bias is None else c.vector(bias).region.part(4 * part.first, 4 * part.rows)
        found.append(Use(matrix, part, shifted, c.width(output), own))
    return found


def linear(c: Lowering, op: Op) -> list[Launch]:
    x, name, *bias = op.inputs
    return [_launch(c, x, [use]) for use in uses(c, name, op.outputs[0], bias[0] if bias else None)]


def linear_group(c: Lowering, op: Op) -> list[Launch]:
    x, *names = op.inputs
    count = len(op.outputs)
    biases: Sequence[str | None] = names[count:] or [None] * count
    of = [uses(c, n, y, b)[0] for n, y, b in zip(names[:count], op.outputs, biases, strict=True)]
    return [_launch(c, x, of)]


def gated_linear(c: Lowering, op: Op) -> list[Launch]:
    x, *names = op.inputs
    of = [uses(c, name, op.outputs[0], None)[0] for name in names]
    return [_launch(c, x, of, ACTIVATIONS[str(op.attribute("act"))])]


def _launch(c: Lowering, x: str, of: Sequence[Use], act: int = 0) -> Launch:
    packing, tokens = of[0].matrix.packing, c.tokens_of(x)
    if tokens == TILE:
        if _is_tiled(packing):
            return _tile_launch(c, x, of, act)
        tokens = max(n for n in c.tuning.tokens_at_once if n < TILE)
    computed = of[:1] if act else of
    items = packing.blocks * packing.vectors
    splits = c.tuning.splits(sum(use.row_groups for use in computed), items)
    together = WARPS // splits
    repeats = c.tuning.repeats(sum(-(-use.row_groups // together) for use in computed))
    ends, end = [], 0
    for use in computed:
        end += -(-use.row_groups // (together * repeats))
        ends.append(end)
    ends += [end] * (MOST_MATRICES - len(ends))
    told = packed(c.place[x], c.counter(x), c.capacity(x), 0, act, splits, repeats, *ends)
    padded = [*of, *[of[0]] * (MOST_MATRICES - len(of))]
    given = arguments(packing_fields(packing), *(use.fields() for use in padded), told)
    kernel = Kernel("linear.cu", "linear", (*macros(packing), f"TOKENS={tokens}"))
    return Launch(kernel, given, (end, by_tokens(c.rows_of(x), tokens), 1), 32 * WARPS)


def _is_tiled(packing: Packing) -> bool:
    """What halves hold exactly: codes, whose scales change every 32 columns at most, and halves themselves."""
    return packing.format == "f16" or (packing.quantised and packing.group % BLOCK == 0)


def _tile_launch(c: Lowering, x: str, of: Sequence[Use], act: int) -> Launch:
    packing, computed = of[0].matrix.packing, of[:1] if act else of
    together = WARPS * (1 if act else 2)
    ends, end = [], 0
    for use in computed:
        end += -(-use.row_groups // together)
        ends.append(end)
    ends += [end] * (MOST_MATRICES - len(ends))
    told = packed(c.place[x], c.counter(x), c.capacity(x), act, *ends)
    padded = [*of, *[of[0]] * (MOST_MATRICES - len(of))]
    given = arguments(packing_fields(packing), *(use.fields() for use in padded), told)
    kernel = Kernel("linear_tile.cu", "linear_tile", macros(packing))
    return Launch(kernel, given, (end, by_tokens(c.rows_of(x), TILE), 1), 32 * WARPS)


def by_tokens(rows: Extent, tokens: int) -> Extent:
    return replace(rows, divisor=tokens) if isinstance(rows, Count) else -(-rows // tokens)


def embed(c: Lowering, op: Op) -> list[Launch]:
    name, token_src, tokens = op.inputs
    table = c.matrix(name)
    packing, (y,) = table.packing, op.outputs
    kernel, threads = Kernel("embed.cu", "embed", macros(packing)), 128
    grid = (c.rows_of(token_src), -(-packing.blocks * packing.vectors // threads), 1)
    launches = []
    for part in table.parts:
        use = Use(table, part, c.place[y], c.width(y))
        given = (*c.at(token_src, tokens), part.first, op.number("scale"), c.counter(token_src))
        told = arguments(packing_fields(packing), use.fields(), *given)
        launches.append(Launch(kernel, told, grid, threads))
    return launches
