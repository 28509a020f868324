"""Launches of what multiplies or looks up rows of a weight matrix: by the parts of a weight."""

from __future__ import annotations

from collections.abc import Sequence

from pie_edge.backends.cuda.launch import Kernel, Launch, arguments, packed
from pie_edge.backends.cuda.lower_tile import is_tiled, tile_launches
from pie_edge.backends.cuda.lowering import Lowering
from pie_edge.backends.cuda.matrices import Use, by_tokens, ends_of, macros, matrices, packing_fields
from pie_edge.backends.cuda.tuning import FEW, TILE, WARPS
from pie_edge.backends.shared.lowering import ACTIVATIONS
from pie_edge.program.ops import Op


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
    found = uses(c, name, op.outputs[0], bias[0] if bias else None)
    return [launch for use in found for launch in _launches(c, x, [use])]


def linear_group(c: Lowering, op: Op) -> list[Launch]:
    x, *names = op.inputs
    count = len(op.outputs)
    biases: Sequence[str | None] = names[count:] or [None] * count
    of = [uses(c, n, y, b)[0] for n, y, b in zip(names[:count], op.outputs, biases, strict=True)]
    return _launches(c, x, of)


def gated_linear(c: Lowering, op: Op) -> list[Launch]:
    x, *names = op.inputs
    of = [uses(c, name, op.outputs[0], None)[0] for name in names]
    return _launches(c, x, of, ACTIVATIONS[str(op.attribute("act"))])


def _launches(c: Lowering, x: str, of: Sequence[Use], act: int = 0) -> list[Launch]:
    packing, tokens = of[0].matrix.packing, c.tokens_of(x)
    if tokens == TILE:
        if is_tiled(packing, c.tuning):
            return tile_launches(c, x, of, act)
        tokens = FEW
    computed = of[:1] if act else of
    items = packing.blocks * packing.vectors
    splits = c.tuning.splits(sum(use.row_groups for use in computed), items)
    together = WARPS // splits
    repeats = c.tuning.repeats(sum(-(-use.row_groups // together) for use in computed))
    ends = ends_of(computed, together * repeats)
    told = packed(c.place[x], c.counter(x), c.capacity(x), act, splits, repeats, *ends)
    kernel = Kernel("linear.cu", "linear", (*macros(packing), f"TOKENS={tokens}"))
    given = arguments(packing_fields(packing), *matrices(of), told)
    return [Launch(kernel, given, (ends[-1], by_tokens(c.rows_of(x), tokens), 1), 32 * WARPS)]


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
