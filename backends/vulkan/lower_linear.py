"""Launches of ``linear``: by the parts of a weight, and by windows of rows where outputs exceed a binding."""

from __future__ import annotations

from collections.abc import Sequence

from pie_edge.backends.shared.grid import among
from pie_edge.backends.shared.lowering import ACTIVATIONS
from pie_edge.backends.shared.region import span
from pie_edge.backends.shared.tuning import LinearVariant
from pie_edge.backends.shared.weights import Matrix, Packing, Part
from pie_edge.backends.shared.words import words
from pie_edge.backends.vulkan.launch import Access, Binding, Kernel, Launch, Texels
from pie_edge.backends.vulkan.lowering import Lowering
from pie_edge.backends.vulkan.memory import Region
from pie_edge.backends.vulkan.shaders import shader
from pie_edge.errors import Unsupported
from pie_edge.program.ops import Op

_MATRICES = 3
Use = tuple[Matrix, Part]


def linear(c: Lowering, op: Op) -> list[Launch]:
    x, name, *bias = op.inputs
    matrix = c.matrix(name)
    launches = []
    for part in matrix.parts:
        launches += _windows(c, x, (matrix, part), op.outputs[0], [c.vector(name).region for name in bias])
    return launches


def linear_group(c: Lowering, op: Op) -> list[Launch]:
    x, *names = op.inputs
    matrices = [c.matrix(name) for name in names[: len(op.outputs)]]
    biases = [c.vector(name).region for name in names[len(op.outputs) :]]
    uses = [(matrix, matrix.parts[0]) for matrix in matrices]
    outputs = [c.write(name) for name in op.outputs]
    return [_launch(c, x, uses, outputs, act=0, biases=biases)]


def gated_linear(c: Lowering, op: Op) -> list[Launch]:
    x, *names = op.inputs
    matrices = [c.matrix(name) for name in names]
    uses = [(matrix, matrix.parts[0]) for matrix in matrices]
    return [_launch(c, x, uses, [c.write(op.outputs[0])], ACTIVATIONS[str(op.attribute("act"))])]


def _windows(c: Lowering, x: str, use: Use, output: str, bias: Sequence[Region]) -> list[Launch]:
    """One launch, or one for each range of rows whose outputs fit a binding."""
    matrix = use[0]
    capacity, rows = c.capacity(x), matrix.shape[0]
    row_bytes = 4 * rows
    most = max(c.facts.max_binding // row_bytes, 1)
    if capacity * row_bytes <= c.facts.max_binding:
        return [_part_launch(c, x, use, c.place[output], 0, capacity, bias)]
    # A window has to begin where a binding may.
    step = next((n for n in range(most, 0, -1) if n * row_bytes % 256 == 0 and n * 4 * matrix.shape[1] % 256 == 0), 0)
    if not step:
        raise Unsupported(
            f"{capacity} rows of {rows} outputs exceed the {c.facts.max_binding} bytes that {c.facts.name} binds; "
            "lower the rows that are read out"
        )
    return [
        _part_launch(c, x, use, c.place[output], first, min(step, capacity - first), bias)
        for first in range(0, capacity, step)
    ]


def _part_launch(
    c: Lowering, x: str, use: Use, output: Region, first: int, count: int, bias: Sequence[Region]
) -> Launch:
    rows = use[0].shape[0]
    whole = output.part(first * rows * 4, min(count * rows * 4, output.nbytes - first * rows * 4))
    return _launch(c, x, [use], [Binding(whole, Access.WRITE)], act=0, biases=bias, tokens=(first, count))


def _launch(
    c: Lowering,
    x: str,
    uses: Sequence[Use],
    outputs: Sequence[Binding],
    act: int,
    biases: Sequence[Region] = (),
    tokens: tuple[int, int] | None = None,
) -> Launch:
    matrix = uses[0][0]
    packing = matrix.packing
    if packing.columns % 4:
        raise Unsupported(f"a matrix with {packing.columns} columns: whole fours are wanted on Vulkan")
    first, count = tokens or (0, c.capacity(x))
    per = c.tokens_of(x)
    variant = c.tuning.linear_variant(per)
    row_groups = max(variant.groups // 2, 1) if act and not variant.tile else variant.groups
    whole = span([part.region for _, part in uses])
    bias = span(biases) if biases else None
    starts = [(region.offset - bias.offset) // 4 for region in biases] if bias else [0] * len(uses)
    groups, push = 0, b""
    for (of, part), start in zip(uses, starts, strict=True):
        groups += 0 if act and groups else -(-part.rows // (packing.interleaved * row_groups))
        offset = part.region.offset - whole.offset
        push += words(offset // 16, (offset + part.scales) // 4, part.rows, groups, of.packing.zero, start)
    push += words(0, 0, 0, groups, 0.0, 0) * (_MATRICES - len(uses))
    step, counter = c.counter(x)
    width = matrix.shape[0] if len(uses) == 1 else 0
    push += words(width, uses[0][1].first, first, count, counter)
    rows = c.read(x).region
    given = rows.part(first * packing.columns * 4, min(count * packing.columns * 4, rows.nbytes))
    padded = [*outputs, *[outputs[0]] * (_MATRICES - len(outputs))]
    as_texels = not variant.tile and c.as_texels(whole, given)
    codes, scales, floats = (Texels.FOURS, Texels.WORDS, Texels.FLOATS) if as_texels else (None, None, None)
    operands = Binding(whole, texels=codes), Binding(whole, texels=scales), Binding(given, texels=floats)
    bindings = (*operands, Binding(bias or whole), *padded, Binding(step or whole))
    grid = (min(groups, 65535), -(-groups // 65535), among(c.rows_of(x), first, count, per))
    constants = (row_groups, per, packing.columns, act, bias is not None, packing.group, packing.scales, *packing.table)
    return Launch(_kernel(packing, variant, constants, "_texels" if as_texels else ""), bindings, grid, push)


def _kernel(packing: Packing, variant: LinearVariant, constants: tuple[int, ...], suffix: str) -> Kernel:
    """``constants`` are the row groups and tokens of a workgroup, and what both kinds of kernels are told after them."""
    lanes, (row_groups, tokens, *rest) = packing.interleaved, constants
    if variant.tile:
        rows = row_groups * lanes
        return Kernel(shader(f"linear_tile_{packing.format}"), (rows // 4 * tokens // 4, lanes, rows, tokens, *rest))
    return Kernel(
        shader(f"linear_{packing.format}{suffix}"), (lanes * variant.splits, lanes, variant.splits, *constants)
    )
