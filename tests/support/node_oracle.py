"""Epilogue nodes in plain Python, one pass at a time: an oracle that shares no arithmetic with NumPy or the batch axis.

Floats are Python's (float64), so float results agree with float32 ones up to rounding; everything else is exact.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from pie_edge.program import threefry
from pie_edge.program.node_types import TensorType
from pie_edge.sampling.graph import Graph

Index = tuple[int, ...]


@dataclass
class Plain:
    """A tensor as a flat, row-major list."""

    shape: tuple[int, ...]
    flat: list[Any]

    def at(self, index: Index) -> Any:
        place = 0
        for extent, position in zip(self.shape, index, strict=True):
            place = place * extent + position
        return self.flat[place]

    def spread(self, shape: tuple[int, ...]) -> list[Any]:
        """Every entry of ``shape``, with axes of 1 and missing leading axes repeated."""
        skipped = len(shape) - len(self.shape)
        return [
            self.at(tuple(0 if extent == 1 else i for extent, i in zip(self.shape, index[skipped:], strict=True)))
            for index in indices(shape)
        ]

    def rows(self, axis: int = -1) -> Iterator[list[Any]]:
        """The entries along an axis, for every place of the other axes."""
        axis %= len(self.shape)
        others = [(0,) if i == axis else range(extent) for i, extent in enumerate(self.shape)]
        for index in product(*others):
            yield [self.at((*index[:axis], i, *index[axis + 1 :])) for i in range(self.shape[axis])]


@dataclass
class Pass:
    """What one pass gives: logits, position, seed and hidden state of each row, and its parameters."""

    logits: list[list[float]]
    positions: list[int]
    seeds: list[tuple[int, int]]
    parameters: list[Plain]
    hidden: list[list[float]] = field(default_factory=list)


def indices(shape: tuple[int, ...]) -> Iterator[Index]:
    return product(*(range(extent) for extent in shape))


def evaluate(graph: Graph, given: Pass) -> list[Plain]:
    results: list[list[Plain]] = []
    draws = 0
    for node in graph.nodes:
        attributes = dict(node.attributes) | {"pass": given, "draw": draws, "vocabulary": graph.vocabulary}
        draws += node.kind.random
        inputs = [results[reference.node][reference.result] for reference in node.inputs]
        found = MEANINGS[node.kind.name](attributes, node.types, *inputs)
        parts = found if isinstance(found, tuple) else (found,)
        results.append([fitted(part, kind) for part, kind in zip(parts, node.types, strict=True)])
    return [results[reference.node][reference.result] for reference in graph.outputs]


def fitted(flat: list[Any], kind: TensorType) -> Plain:
    assert len(flat) == math.prod(kind.shape), f"{len(flat)} entries for {kind}"
    wrap = {"i32": lambda v: (int(v) + 2**31) % 2**32 - 2**31, "u32": lambda v: int(v) % 2**32, "bool": bool}
    return Plain(kind.shape, [wrap.get(kind.dtype, single)(value) for value in flat])


def single(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


# Arithmetic that Python refuses and IEEE defines.


def guarded(function: Callable[[float], float]) -> Callable[[float], float]:
    def call(x: float) -> float:
        try:
            return function(x)
        except OverflowError:
            return math.inf
        except ValueError:
            return math.nan

    return call


def logarithm(x: float) -> float:
    return -math.inf if x == 0 else guarded(math.log)(x)


def divide(x: float, y: float) -> float:
    if y == 0:
        return math.nan if x == 0 or math.isnan(x) else math.copysign(math.inf, x) * math.copysign(1, y)
    return x / y


def elementwise(function: Callable[..., Any]) -> Callable[..., list[Any]]:
    def meaning(attributes: Any, types: Any, *inputs: Plain) -> list[Any]:
        return [function(*values) for values in zip(*(x.spread(types[0].shape) for x in inputs), strict=True)]

    return meaning


def rowwise(function: Callable[[list[Any]], Any]) -> Callable[..., list[Any]]:
    """A reduction: one value for each row of the axis."""
    return lambda attributes, types, x: [function(row) for row in x.rows(attributes["axis"])]


def rewritten(function: Callable[[list[Any]], list[Any]]) -> Callable[..., list[Any]]:
    """A row for each row of the axis, put back in place."""

    def meaning(attributes: Any, types: Any, x: Plain) -> list[Any]:
        axis = attributes["axis"] % len(x.shape)
        rows = [function(row) for row in x.rows(axis)]
        order = {index: n for n, index in enumerate(indices((*x.shape[:axis], *x.shape[axis + 1 :])))}
        return [rows[order[(*index[:axis], *index[axis + 1 :])]][index[axis]] for index in indices(x.shape)]

    return meaning


def weights(row: list[float]) -> list[float]:
    best = max(row)
    return [1.0 if value == best else math.exp(value - best) for value in row]


def softmax(row: list[float]) -> list[float]:
    parts = weights(row)
    total = math.fsum(parts)
    return [part / total for part in parts]


def log_softmax(row: list[float]) -> list[float]:
    best, total = max(row), math.log(math.fsum(weights(row)))
    return [(0 if value == best else value - best) - total for value in row]


def entropy(row: list[float]) -> float:
    return -math.fsum(p * math.log(p) for p in softmax(row) if p > 0)


def falling(row: list[Any]) -> list[int]:
    return sorted(range(len(row)), key=lambda i: (-row[i], i))


def top_k(attributes: Any, types: Any, x: Plain) -> tuple[list[Any], list[Any]]:
    picked = [(row, falling(row)[: attributes["k"]]) for row in x.rows()]
    return [row[i] for row, order in picked for i in order], [i for _, order in picked for i in order]


def sort(attributes: Any, types: Any, x: Plain) -> tuple[list[Any], list[Any]]:
    order = falling if attributes["descending"] else lambda row: sorted(range(len(row)), key=lambda i: (row[i], i))
    picked = [(row, order(row)) for row in x.rows()]
    return [row[i] for row, places in picked for i in places], [i for _, places in picked for i in places]


def threshold(function: Callable[[list[float], Any], float]) -> Callable[..., list[float]]:
    def meaning(attributes: Any, types: Any, x: Plain, argument: Plain) -> list[float]:
        rows = list(x.rows())
        given = argument.flat if len(argument.flat) == len(rows) else argument.flat * len(rows)
        return [function(row, value) for row, value in zip(rows, given, strict=True)]

    return meaning


def nucleus(row: list[float], p: float) -> float:
    if p >= 1:
        return min(row)
    total, falling_row = 0.0, sorted(row, reverse=True)
    for value, part in zip(falling_row, sorted(softmax(row), reverse=True), strict=True):
        total += part
        if total >= p:
            return value
    return falling_row[-1]


# Draws.


def drawn(attributes: Any, element: int, row: int) -> float:
    given: Pass = attributes["pass"]
    stream = threefry.stream(given.seeds[row], given.positions[row], attributes["draw"])
    return threefry.uniform(threefry.word(stream, element))


def noise(uniform: float) -> float:
    return -math.log(-math.log(uniform))


def uniform(attributes: Any, types: Any) -> list[float]:
    rows, size = attributes["rows"], math.prod(attributes["shape"])
    return [drawn(attributes, i, row) for row in range(-(rows or 1), 0) for i in range(size)]


def gumbel_max(attributes: Any, types: Any, x: Plain) -> list[int]:
    rows = list(x.rows())
    streams = attributes["rows"] or 1
    share, found = len(rows) // streams, []
    for number, row in enumerate(rows):
        first = number % share * len(row)
        stream = number // share - streams
        scores = [value + noise(drawn(attributes, first + i, stream)) for i, value in enumerate(row)]
        found.append(scores.index(max(scores)))
    return found


# Indices.


def gather(attributes: Any, types: Any, x: Plain, where: Plain) -> list[Any]:
    rest = list(indices(x.shape[1:]))
    return [x.at((i, *tail)) if 0 <= i < x.shape[0] else 0 for i in where.flat for tail in rest]


def take_along(attributes: Any, types: Any, x: Plain, where: Plain) -> list[Any]:
    rows = list(x.rows())
    share = len(where.flat) // len(rows)
    return [rows[n // share][i] if 0 <= i < x.shape[-1] else 0 for n, i in enumerate(where.flat)]


def scatter(attributes: Any, types: Any, x: Plain, where: Plain, updates: Plain) -> list[Any]:
    change: dict[str, Callable[[Any, Any], Any]] = {
        "set": lambda old, new: new,
        "add": lambda old, new: old + new,
        "min": min,
        "max": max,
    }
    rows, values = list(x.rows()), updates.spread(where.shape)
    count = where.shape[-1]
    for n, (i, value) in enumerate(zip(where.flat, values, strict=True)):
        if 0 <= i < x.shape[-1]:
            row = rows[n // count]
            row[i] = change[attributes["mode"]](row[i], value)
    return [value for row in rows for value in row]


def bit(words: Sequence[int], i: int) -> bool:
    return bool(words[i // 32] >> (i % 32) & 1)


def mask_logits(attributes: Any, types: Any, x: Plain, words: Plain) -> list[float]:
    rows, masks = list(x.rows()), list(words.rows())
    masks = masks if len(masks) == len(rows) else masks * len(rows)
    return [
        value if bit(mask, i) else -math.inf
        for row, mask in zip(rows, masks, strict=True)
        for i, value in enumerate(row)
    ]


def pack_bits(attributes: Any, types: Any, x: Plain) -> list[int]:
    found = []
    for row in x.rows():
        chunks = [row[start : start + 32] for start in range(0, len(row), 32)]
        found += [sum(int(flag) << i for i, flag in enumerate(chunk)) for chunk in chunks]
    return found


def picked(function: Callable[[Any, Index], Index]) -> Callable[..., list[Any]]:
    """Each entry of the result is an entry of the operand."""
    return lambda attributes, types, x: [x.at(function(attributes, index)) for index in indices(types[0].shape)]


def slice_(attributes: Any, index: Index) -> Index:
    axis = attributes["axis"] % len(index)
    return (*index[:axis], attributes["start"] + index[axis] * attributes["step"], *index[axis + 1 :])


def index_(attributes: Any, index: Index) -> Index:
    axis = attributes["axis"] % (len(index) + 1)
    return (*index[:axis], attributes["at"], *index[axis:])


def concat(attributes: Any, types: Any, *xs: Plain) -> list[Any]:
    axis, found = attributes["axis"] % len(xs[0].shape), []
    sources = [(x, i) for x in xs for i in range(x.shape[axis])]
    for index in indices(types[0].shape):
        x, place = sources[index[axis]]
        found.append(x.at((*index[:axis], place, *index[axis + 1 :])))
    return found


def stack(attributes: Any, types: Any, *xs: Plain) -> list[Any]:
    axis = attributes["axis"] % (len(xs[0].shape) + 1)
    return [xs[index[axis]].at((*index[:axis], *index[axis + 1 :])) for index in indices(types[0].shape)]


def cast(attributes: Any, types: Any, x: Plain) -> list[Any]:
    target = attributes["dtype"]
    if target == "bool":
        return [value != 0 for value in x.flat]
    if target == "f32" or not any(isinstance(value, float) for value in x.flat):
        return [float(value) if target == "f32" else value for value in x.flat]
    low, high = (0, 2**32 - 1) if target == "u32" else (-(2**31), 2**31 - 1)
    return [0 if math.isnan(v) else low if v < low else high if v > high else int(v) for v in x.flat]


def last(attributes: Any, values: list[Any]) -> list[Any]:
    return values[-(attributes["rows"] or 1) :]


def sign(x: float) -> int:
    return (x > 0) - (x < 0)


MEANINGS: dict[str, Callable[..., Any]] = {
    "logits": lambda a, t: [value for row in last(a, a["pass"].logits) for value in row],
    "hidden": lambda a, t: [value for row in last(a, a["pass"].hidden) for value in row],
    "position": lambda a, t: last(a, a["pass"].positions),
    "param": lambda a, t: a["pass"].parameters[a["index"]].flat,
    "constant": lambda a, t: [a["value"]],
    "iota": lambda a, t: list(range(a["size"])),
    "uniform": uniform,
    "gumbel": lambda a, t: [noise(u) for u in uniform(a, t)],
    "neg": elementwise(lambda x: -x),
    "abs": elementwise(abs),
    "sign": elementwise(sign),
    "not": elementwise(lambda x: not x if isinstance(x, bool) else ~x),
    "exp": elementwise(guarded(math.exp)),
    "log": elementwise(logarithm),
    "log1p": elementwise(lambda x: logarithm(1 + x)),
    "sqrt": elementwise(guarded(math.sqrt)),
    "tanh": elementwise(math.tanh),
    "sigmoid": elementwise(lambda x: 1 / (1 + guarded(math.exp)(-x))),
    "floor": elementwise(lambda x: x if math.isinf(x) else math.floor(x)),
    "ceil": elementwise(lambda x: x if math.isinf(x) else math.ceil(x)),
    "round": elementwise(lambda x: x if math.isinf(x) else round(x)),
    "add": elementwise(lambda x, y: x + y),
    "sub": elementwise(lambda x, y: x - y),
    "mul": elementwise(lambda x, y: x * y),
    "div": elementwise(divide),
    "floordiv": elementwise(lambda x, y: x // y if y else 0),
    "mod": elementwise(lambda x, y: x % y if y else 0),
    "pow": elementwise(lambda x, y: x**y),
    "minimum": elementwise(min),
    "maximum": elementwise(max),
    "and": elementwise(lambda x, y: x & y),
    "or": elementwise(lambda x, y: x | y),
    "xor": elementwise(lambda x, y: x ^ y),
    "shl": elementwise(lambda x, y: x << (y & 31)),
    "shr": elementwise(lambda x, y: x >> (y & 31)),
    "eq": elementwise(lambda x, y: x == y),
    "ne": elementwise(lambda x, y: x != y),
    "lt": elementwise(lambda x, y: x < y),
    "le": elementwise(lambda x, y: x <= y),
    "gt": elementwise(lambda x, y: x > y),
    "ge": elementwise(lambda x, y: x >= y),
    "select": elementwise(lambda condition, x, y: x if condition else y),
    "cast": cast,
    "reduce_max": rowwise(max),
    "reduce_min": rowwise(min),
    "reduce_sum": rowwise(sum),
    "reduce_mean": rowwise(lambda row: sum(row) / len(row)),
    "reduce_argmax": rowwise(lambda row: row.index(max(row))),
    "reduce_argmin": rowwise(lambda row: row.index(min(row))),
    "reduce_any": rowwise(any),
    "reduce_all": rowwise(all),
    "logsumexp": rowwise(lambda row: max(row) + math.log(math.fsum(weights(row)))),
    "entropy": rowwise(entropy),
    "softmax": rewritten(softmax),
    "log_softmax": rewritten(log_softmax),
    "cumsum": rewritten(lambda row: [sum(row[: i + 1]) for i in range(len(row))]),
    "top_k": top_k,
    "sort": sort,
    "kth_largest": threshold(lambda row, k: sorted(row, reverse=True)[min(max(k, 1), len(row)) - 1]),
    "nucleus": threshold(nucleus),
    "min_p": threshold(lambda row, p: max(row) + logarithm(p)),
    "gumbel_max": gumbel_max,
    "mask_logits": mask_logits,
    "unpack_bits": lambda a, t, words: [bit(row, i) for row in words.rows() for i in range(a["size"])],
    "pack_bits": pack_bits,
    "gather": gather,
    "take_along": take_along,
    "scatter": scatter,
    "reshape": lambda a, t, x: x.flat,
    "broadcast": lambda a, t, x: x.spread(t[0].shape),
    "slice": picked(slice_),
    "index": picked(index_),
    "concat": concat,
    "stack": stack,
}
