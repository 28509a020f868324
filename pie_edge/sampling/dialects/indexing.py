"""Coordinates: where an entry of a tensor lies, as scalar expressions, and the nodes that only move entries about.

Coordinates are those of one pass, one u32 for each axis; an axis with one entry has the constant 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from pie_edge.program.node_types import Element
from pie_edge.program.ops import Op
from pie_edge.sampling.dialects import functions, random
from pie_edge.sampling.dialects.scalar import I32, U32, Builder, Leaf, Memory, Scalar

Coordinates = tuple[Scalar, ...]
Shape = tuple[int, ...]


class Operands(Protocol):
    """What a node's expression is made from: entries of its operands, and words of the call's inputs."""

    builder: Builder

    def at(self, name: str, coordinates: Coordinates) -> Scalar: ...

    def shape(self, name: str) -> Shape: ...

    def element(self, name: str) -> Element: ...

    def given(self, name: str, offset: Scalar) -> Scalar:
        """A u32 of an input that has no axes of its own."""


Entry = Callable[[Operands, Op, Coordinates], Scalar]
"""A node's result at the coordinates."""


def linear(coordinates: Sequence[Scalar], shape: Sequence[int], builder: Builder) -> Scalar:
    """Row-major number of an entry."""
    total = builder.constant(U32, 0)
    for coordinate, extent in zip(coordinates, shape, strict=True):
        total = total * extent + coordinate
    return total


def delinear(number: Scalar, shape: Sequence[int]) -> Coordinates:
    found = []
    for extent in reversed(shape):
        found.append(number % extent)
        number = number // extent
    return tuple(reversed(found))


def aligned(coordinates: Coordinates, shape: Shape) -> Coordinates:
    """Of an operand that is spread to where the coordinates are: aligned at the last axis, axes of 1 repeated."""
    tail = coordinates[len(coordinates) - len(shape) :]
    return tuple(c.builder.constant(U32, 0) if extent == 1 else c for c, extent in zip(tail, shape, strict=True))


# Sources.


def _row(operands: Operands, op: Op, coordinates: Coordinates) -> Scalar:
    """Which of the call's rows the node sees at these coordinates: the pass's last ones, the first axis if there is one."""
    pass_rows, rows = op.integer("pass_rows"), op.integer("rows")
    first = operands.builder.leaf(Leaf.PASS) * pass_rows + (pass_rows - max(rows, 1))
    return first + coordinates[0] if rows else first


def _read_out(memory: Memory) -> Entry:
    def entry(operands: Operands, op: Op, coordinates: Coordinates) -> Scalar:
        state, rows = op.inputs
        row = operands.given(rows, _row(operands, op, coordinates))
        return operands.builder.load(memory, Element.F32, row * operands.shape(state)[-1] + coordinates[-1])

    return entry


def _position(operands: Operands, op: Op, coordinates: Coordinates) -> Scalar:
    return operands.given("positions", _row(operands, op, coordinates))


def _constant(operands: Operands, op: Op, coordinates: Coordinates) -> Scalar:
    value = op.attribute("value")
    assert isinstance(value, int | float)
    return operands.builder.constant(operands.element(op.outputs[0]), value)


def _iota(operands: Operands, op: Op, coordinates: Coordinates) -> Scalar:
    return coordinates[0]


def drawn_word(operands: Operands, op: Op, coordinates: Coordinates, shape: Shape) -> Scalar:
    """The word of a drawing node's stream at these coordinates of a tensor of ``shape``."""
    row = _row(operands, op, coordinates)
    seed = operands.given("draw_keys", row * 2), operands.given("draw_keys", row * 2 + 1)
    position = operands.given("positions", row)
    key = random.stream(operands.builder, seed, position, op.integer("draw"))
    own = 1 if op.integer("rows") else 0
    return random.word(key, linear(coordinates[own:], shape[own:], operands.builder))


def _uniform(operands: Operands, op: Op, coordinates: Coordinates) -> Scalar:
    return random.uniform(drawn_word(operands, op, coordinates, operands.shape(op.outputs[0])))


def _gumbel(operands: Operands, op: Op, coordinates: Coordinates) -> Scalar:
    return random.gumbel(_uniform(operands, op, coordinates))


# Structure.


def _cast(operands: Operands, op: Op, coordinates: Coordinates) -> Scalar:
    return functions.cast(operands.at(op.inputs[0], coordinates), operands.element(op.outputs[0]))


def _reshape(operands: Operands, op: Op, coordinates: Coordinates) -> Scalar:
    (name,) = op.inputs
    number = linear(coordinates, operands.shape(op.outputs[0]), operands.builder)
    return operands.at(name, delinear(number, operands.shape(name)))


def _broadcast(operands: Operands, op: Op, coordinates: Coordinates) -> Scalar:
    (name,) = op.inputs
    return operands.at(name, aligned(coordinates, operands.shape(name)))


def _slice(operands: Operands, op: Op, coordinates: Coordinates) -> Scalar:
    axis = op.integer("axis") + len(coordinates)
    moved = coordinates[axis] * op.integer("step") + op.integer("start")
    return operands.at(op.inputs[0], (*coordinates[:axis], moved, *coordinates[axis + 1 :]))


def _index(operands: Operands, op: Op, coordinates: Coordinates) -> Scalar:
    axis = op.integer("axis") + len(coordinates) + 1
    at = operands.builder.constant(U32, op.integer("at"))
    return operands.at(op.inputs[0], (*coordinates[:axis], at, *coordinates[axis:]))


def _concat(operands: Operands, op: Op, coordinates: Coordinates) -> Scalar:
    """Each part is read at a place that it has, and the one that is meant is taken."""
    axis = op.integer("axis") + len(coordinates)
    place = coordinates[axis]
    found: Scalar | None = None
    end = operands.shape(op.outputs[0])[axis]
    for name in reversed(op.inputs):
        extent = operands.shape(name)[axis]
        end -= extent
        inner = place - end
        inside = (inner < extent).where(inner, 0)
        entry = operands.at(name, (*coordinates[:axis], bounded(inside, extent), *coordinates[axis + 1 :]))
        found = entry if found is None else (place < end + extent).where(entry, found)
    assert found is not None
    return found


def _stack(operands: Operands, op: Op, coordinates: Coordinates) -> Scalar:
    axis = op.integer("axis") + len(coordinates)
    rest = (*coordinates[:axis], *coordinates[axis + 1 :])
    found = operands.at(op.inputs[-1], rest)
    for number in range(len(op.inputs) - 2, -1, -1):
        found = coordinates[axis].equals(number).where(operands.at(op.inputs[number], rest), found)
    return found


def bounded(index: Scalar, extent: int) -> Scalar:
    """An index that is known to lie within an axis."""
    return index.builder.constant(U32, 0) if extent == 1 else index


def _picked(operands: Operands, indices: Scalar, extent: int, read: Callable[[Scalar], Scalar]) -> Scalar:
    """What ``read`` gives at an index, zero if it is out of range."""
    index = indices.bits(U32) if indices.element is I32 else indices
    good = index < extent
    entry = read(bounded(good.where(index, 0), extent))
    return good.where(entry, 0)


def _gather(operands: Operands, op: Op, coordinates: Coordinates) -> Scalar:
    name, indices = op.inputs
    rank = len(operands.shape(indices))
    index = operands.at(indices, coordinates[:rank])
    return _picked(operands, index, operands.shape(name)[0], lambda i: operands.at(name, (i, *coordinates[rank:])))


def _take_along(operands: Operands, op: Op, coordinates: Coordinates) -> Scalar:
    name, indices = op.inputs
    lead = len(operands.shape(name)) - 1
    index = operands.at(indices, coordinates)
    return _picked(operands, index, operands.shape(name)[-1], lambda i: operands.at(name, (*coordinates[:lead], i)))


def _bit(operands: Operands, words: str, coordinates: Coordinates) -> Scalar:
    """Bit i % 32 of word i // 32; the words are one mask a pass or one a row."""
    lead = coordinates[:-1] if len(operands.shape(words)) > 1 else ()
    index = coordinates[-1]
    word = operands.at(words, (*lead, bounded(index >> 5, operands.shape(words)[-1])))
    return ((word >> (index & 31)) & 1).differs(0)


def _mask_logits(operands: Operands, op: Op, coordinates: Coordinates) -> Scalar:
    x, words = op.inputs
    return _bit(operands, words, coordinates).where(operands.at(x, coordinates), float("-inf"))


def _unpack_bits(operands: Operands, op: Op, coordinates: Coordinates) -> Scalar:
    return _bit(operands, op.inputs[0], coordinates)


ENTRIES: Mapping[str, Entry] = {
    "logits": _read_out(Memory.LOGITS),
    "hidden": _read_out(Memory.HIDDEN),
    "position": _position,
    "constant": _constant,
    "iota": _iota,
    "uniform": _uniform,
    "gumbel": _gumbel,
    "cast": _cast,
    "reshape": _reshape,
    "broadcast": _broadcast,
    "slice": _slice,
    "index": _index,
    "concat": _concat,
    "stack": _stack,
    "gather": _gather,
    "take_along": _take_along,
    "mask_logits": _mask_logits,
    "unpack_bits": _unpack_bits,
}
"""Nodes whose result at some coordinates is an expression of their operands at others."""
