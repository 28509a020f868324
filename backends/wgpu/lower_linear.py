"""Launches of ``product`` (see ``absorb.py``): by the parts of a weight, and by windows of rows where outputs exceed
a binding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pie_edge.backends.shared.grid import among
from pie_edge.backends.shared.region import Region as AnyRegion
from pie_edge.backends.shared.region import span
from pie_edge.backends.shared.weights import HALF_SCALES, Matrix, Packing, Part
from pie_edge.backends.wgpu.absorb import Product
from pie_edge.backends.wgpu.lowering import Lowering
from pie_edge.backends.wgpu.memory import Region
from pie_edge.backends.wgpu.plan import ALIGNMENT, MOST_GROUPS, Launch, launch
from pie_edge.backends.wgpu.shader import shader
from pie_edge.errors import Unsupported
from pie_edge.program.ops import Op

_MATRICES = 3
MOST_UNIFORM = 64 << 10
"""Bytes of a uniform buffer that WebGPU promises. x is read as one where so little is enough: all invocations read the same of
it, and drivers load that once for all."""
Use = tuple[Matrix, Part]


def product(c: Lowering, op: Op) -> list[Launch]:
    given = Product.of(op)
    matrices = [c.matrix(name) for name in given.weights]
    if len(matrices) == 1:
        return [one for part in matrices[0].parts for one in _launches(c, given, [(matrices[0], part)])]
    return _launches(c, given, [(matrix, matrix.parts[0]) for matrix in matrices])


def packed(c: Lowering, packing: Packing) -> dict[str, Any]:
    """The constants by which kernels read a matrix."""
    affine, halves = packing.quantised, c.tuning.half_floats
    return {
        "FORMAT": packing.format,
        "AFFINE": affine,
        "HALF_CODES": halves and packing.format == "f16",
        # Words of scales with high bits of codes among them stay words.
        "HALF_SCALES": halves and packing.scales in HALF_SCALES and affine and not packing.high_bits,
        "HIGH": packing.high_bits,
        "VECTORS": packing.vectors,
        "PARTS": 8 // packing.vectors,
        "RI": packing.interleaved,
        "COLUMNS": packing.columns,
        "BLOCKS": packing.blocks,
        "GROUP": packing.group,
        "SCALES": packing.scales,
        "TABLE": packing.table,
        "SCALE_WORDS": packing.scale_words,
        "ROW_WORDS": packing.row_words,
    }


def _launches(c: Lowering, given: Product, uses: Sequence[Use]) -> list[Launch]:
    """One launch, or one for each range of rows whose outputs fit a binding, and whose x fits a uniform buffer."""
    capacity, columns = c.capacity(given.x), uses[0][0].packing.columns
    if columns % 4:
        raise Unsupported(f"a matrix with {columns} columns: whole fours are wanted on wgpu")
    rows = [4 * c.width(name) for name in given.outputs]
    per = c.tokens_of(given.x)
    if all(c.place[name].buffer is not c.place[given.x].buffer for name in given.outputs):
        held = MOST_UNIFORM // (4 * columns) // per * per
        step = _step(min(held, c.max_binding // max(rows)), (*rows, 4 * columns), per)
        if step and _reaches(c.place[given.x], capacity, step, held, 4 * columns):
            windows = [(n, min(step, capacity - n)) for n in range(0, capacity, step)]
            return [_launch(c, given, uses, window, held * columns // 4) for window in windows]
    if capacity * max(rows) <= c.max_binding:
        return [_launch(c, given, uses, (0, capacity), 0)]
    step = _step(c.max_binding // max(rows), (*rows, 4 * columns), 1)
    if not step:
        raise Unsupported(
            f"{capacity} rows of {max(rows) // 4} outputs exceed the {c.max_binding} bytes that a buffer's binding may have "
            "here; lower the rows that are read out"
        )
    return [_launch(c, given, uses, (n, min(step, capacity - n)), 0) for n in range(0, capacity, step)]


def _step(most: int, row_bytes: Sequence[int], multiple: int) -> int:
    """The most rows, at most so many, after which every one of these may be bound; 0 if there are none."""
    tried = range(most // multiple * multiple, 0, -multiple)
    return next((n for n in tried if not any(n * nbytes % ALIGNMENT for nbytes in row_bytes)), 0)


def _reaches(x: Region, capacity: int, step: int, held: int, row: int) -> bool:
    """Whether so many rows can be bound even from the last window on: what lies after x is not looked at."""
    last = (capacity - 1) // step * step
    return x.offset + (last + held) * row <= x.buffer.nbytes


def _part(region: Region, tokens: tuple[int, int], row: int) -> Region:
    """So many rows from the first, of so many bytes."""
    first, count = tokens
    return region.part(first * row, min(count * row, region.nbytes - first * row))


def _launch(c: Lowering, given: Product, uses: Sequence[Use], tokens: tuple[int, int], uniform: int) -> Launch:
    """With ``uniform`` so many vectors of x are bound as a uniform buffer."""
    (first, count), packing = tokens, uses[0][0].packing
    per, counter = c.tokens_of(given.x), c.counter_word(given.x)
    variant = c.tuning.linear_variant(per)
    row_groups = max(variant.groups // (2 if given.act else 1) // (2 if packing.vectors > 1 else 1), 1)
    beside = uniform and given.residual and c.place[given.residual].buffer is c.place[given.x].buffer
    constants = {
        **packed(c, packing),
        "KS": variant.splits,
        "NR": row_groups,
        "M": per,
        "OUTPUTS": len(given.outputs),
        **_sums(packing, row_groups, per, given),
        "COUNTED": counter is not None,
        "COUNTER": counter or 0,
        "X_ROW": "token + {m}u",
        "UNIFORM": uniform,
        "ACT": given.act,
        "T": "f32",
        "BIAS": bool(given.biases),
        "RESIDUAL": "beside x" if beside else "yes" if given.residual else "",
        "NORM": bool(given.norm),
        "EPS": given.eps,
        "OFFSET": given.offset,
    }
    bindings = _operands(c, given, uses, tokens, uniform)
    if counter is not None:
        bindings["counts"] = c.header
    matrices, groups = _told(c, given, uses, packing.interleaved * row_groups)
    width = uses[0][0].shape[0] if len(uses) == 1 else 0
    told = {"width": width, "place": uses[0][1].first, "first": first, "room": count}
    grid = (min(groups, MOST_GROUPS), -(-groups // MOST_GROUPS), among(c.rows_of(given.x), first, count, per))
    return launch(shader("linear", **constants), bindings, grid, **matrices, **told)


def _sums(packing: Packing, row_groups: int, tokens: int, given: Product) -> dict[str, int]:
    """How many sums an invocation has, and into how many a block's are divided."""
    sides = 2 if given.act else 1
    fractions = 32 // packing.group if packing.group < 32 else 1
    return {
        "SIDES": sides,
        "FRACTIONS": fractions,
        "SUMS": sides * row_groups * tokens + (tokens if given.norm else 0),
    }


def _operands(
    c: Lowering, given: Product, uses: Sequence[Use], tokens: tuple[int, int], uniform: int
) -> dict[str, Region]:
    codes, x, row = span([part.region for _, part in uses]), c.place[given.x], 4 * uses[0][0].packing.columns
    found = {"codes": codes, "x": _part(x, tokens, row)}
    if uniform:
        found["x"] = AnyRegion(x.buffer, x.offset + tokens[0] * row, 16 * uniform)
    if uses[0][0].packing.quantised:
        found["scales"] = codes
    if given.norm:
        found["norm"] = c.vector(given.norm).region
    if given.biases:
        found["bias"] = span([c.vector(name).region for name in given.biases])
    wide = 4 * c.width(given.outputs[0])
    if given.residual:
        found["residual"] = _part(c.place[given.residual], tokens, wide)
    for number, name in enumerate(given.outputs):
        found[f"y{number}"] = _part(c.place[name], tokens, 4 * c.width(name))
    return found


def _told(c: Lowering, given: Product, uses: Sequence[Use], rows: int) -> tuple[Mapping[str, int | float], int]:
    """Parameters of each matrix, and the workgroups of all, each of so many rows."""
    whole, groups, found = span([part.region for _, part in uses]), 0, dict[str, int | float]()
    biases = [c.vector(name).region for name in given.biases]
    for n in range(_MATRICES):
        values: tuple[int | float, ...] = (0, 0, 0, groups, 0.0, 0)
        if n < len(uses):
            matrix, part = uses[n]
            groups += 0 if given.act and n else -(-part.rows // rows)
            at = part.region.offset - whole.offset
            bias = (biases[n].offset - span(biases).offset) // 4 + part.first if biases else 0
            values = (at // 16, (at + part.scales) // 4, part.rows, groups, matrix.packing.zero, bias)
        names = (f"{name}{n}" for name in ("codes", "scales", "rows", "end", "zero", "bias"))
        found |= dict(zip(names, values, strict=True))
    return found, groups
