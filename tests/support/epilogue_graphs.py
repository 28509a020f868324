"""Random epilogues for property tests, whose results two correct implementations must agree on.

Order and equality decide on the last bit, so nodes that compare see *exact* values alone: integers, also as floats, small
enough that float32 holds every sum of them. What rounds (exp, softmax, noise, …) is *smooth* and goes on to nodes that only
carry it along.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from hypothesis import strategies as st

from tests.support.epilogues import Wire

Draw = Any
EXACT_LIMIT = 2**22
"""Of an exact float's magnitude."""
MAX_ENTRIES = 600


@dataclass(frozen=True)
class Made:
    """A value of the epilogue being made. ``bound`` is its magnitude's, None for smooth values."""

    reference: Any
    dtype: str
    shape: tuple[int, ...]
    bound: int | None

    @property
    def exact(self) -> bool:
        return self.bound is not None


@dataclass(frozen=True)
class Given:
    """A parameter: integers from −``bound`` to ``bound``, whatever their type."""

    dtype: str
    shape: tuple[int, ...]
    bound: int


@dataclass(frozen=True)
class Case:
    text: str
    parameters: tuple[Given, ...]
    rows: int
    vocabulary: int


class _Graph:
    def __init__(self, draw: Draw, rows: int, vocabulary: int) -> None:
        self.draw = draw
        self.wire = Wire()
        self.rows, self.vocabulary = rows, vocabulary
        self.values: list[Made] = []
        self.parameters: list[Given] = []

    def pick(self, wanted: Any = lambda value: True) -> Made | None:
        fitting = [value for value in self.values if wanted(value)]
        return self.draw(st.sampled_from(fitting)) if fitting else None

    def add(
        self, dtype: str, shape: tuple[int, ...], bound: int | None, op: str, /, *inputs: Made, **attributes: Any
    ) -> None:
        """A node with one result, if that isn't too large."""
        if len(shape) <= 4 and prod(shape) <= MAX_ENTRIES:
            node = self.wire.add(op, *(value.reference for value in inputs), **attributes)
            self.values.append(Made(node, dtype, shape, bound))

    def logits(self) -> None:
        rows = self.draw(st.sampled_from([None, *range(1, self.rows + 1)]))
        count = self.rows if rows is None and self.rows > 1 else rows
        shape = (self.vocabulary,) if count is None else (count, self.vocabulary)
        self.add("f32", shape, 64, "logits", **({} if rows is None else {"rows": rows}))

    def parameter(self) -> None:
        dtype = self.draw(st.sampled_from(["f32", "i32", "u32", "bool"]))
        shape = tuple(self.draw(st.lists(st.sampled_from([1, 2, 3, 5]), max_size=3)))
        bound = 1 if dtype == "bool" else self.draw(st.sampled_from([1, 7, 64]))
        self.parameters.append(Given(dtype, shape, bound))
        self.values.append(Made(self.wire.parameter(dtype, shape), dtype, shape, bound))


def _numbers(value: Made) -> bool:
    return value.dtype != "bool"


def _exact_numbers(value: Made) -> bool:
    return value.exact and value.dtype != "bool"


def _spread(x: Made, y: Made) -> tuple[int, ...] | None:
    """The shape of both together, None if they don't go together."""
    rank = max(len(x.shape), len(y.shape))
    found = []
    for a, b in zip((1,) * (rank - len(x.shape)) + x.shape, (1,) * (rank - len(y.shape)) + y.shape, strict=True):
        if a != b and 1 not in (a, b):
            return None
        found.append(max(a, b))
    return tuple(found)


def _total(x: Made, y: Made, op: str) -> int | None:
    """The bound of a sum or product; −1 if it would round."""
    if x.bound is None or y.bound is None:
        return None
    bound = x.bound * y.bound if op == "mul" else x.bound + y.bound
    return bound if x.dtype != "f32" or bound < EXACT_LIMIT else -1


def _arithmetic(graph: _Graph) -> None:
    x = graph.pick(_numbers)
    y = x and graph.pick(lambda value: value.dtype == x.dtype and _spread(x, value) is not None)
    if x is None or y is None:
        return
    ops = ["add", "sub", "mul"] + (["minimum", "maximum"] if x.exact and y.exact else [])
    op = graph.draw(st.sampled_from(ops))
    bound = max(x.bound or 0, y.bound or 0) if op in ("minimum", "maximum") else _total(x, y, op)
    if bound == -1 or (bound is None and op == "mul"):
        return
    shape = _spread(x, y)
    assert shape is not None
    # Integers wrap: any bound will do.
    graph.add(x.dtype, shape, bound if bound is None or x.dtype == "f32" else min(bound, 2**40), op, x, y)


def _integer(graph: _Graph) -> None:
    x = graph.pick(lambda value: value.dtype in ("i32", "u32"))
    y = x and graph.pick(lambda value: value.dtype == x.dtype and _spread(x, value) is not None)
    if x is None or y is None:
        return
    op = graph.draw(st.sampled_from(["floordiv", "mod", "and", "or", "xor", "shl", "shr"]))
    shape = _spread(x, y)
    assert shape is not None
    graph.add(x.dtype, shape, 2**40, op, x, y)


def _compare(graph: _Graph) -> None:
    x = graph.pick(_exact_numbers)
    y = x and graph.pick(
        lambda value: _exact_numbers(value) and value.dtype == x.dtype and _spread(x, value) is not None
    )
    if x is not None and y is not None:
        shape = _spread(x, y)
        assert shape is not None
        graph.add("bool", shape, 1, graph.draw(st.sampled_from(["eq", "ne", "lt", "le", "gt", "ge"])), x, y)


def _select(graph: _Graph) -> None:
    condition, x = graph.pick(lambda value: value.dtype == "bool"), graph.pick()
    if condition is None or x is None or _spread(condition, x) is None:
        return
    y = graph.pick(lambda value: value.dtype == x.dtype and value.shape == x.shape)
    assert y is not None
    bound = max(x.bound, y.bound) if x.bound is not None and y.bound is not None else None
    shape = _spread(condition, x)
    assert shape is not None
    graph.add(x.dtype, shape, bound, "select", condition, x, y)


def _unary(graph: _Graph) -> None:
    x = graph.pick(_exact_numbers)
    if x is None:
        return
    if x.dtype == "f32":
        op = graph.draw(
            st.sampled_from(["neg", "abs", "sign", "floor", "tanh", "sigmoid", "exp", "softmax", "log_softmax"])
        )
        smooth = op in ("tanh", "sigmoid", "exp", "softmax", "log_softmax")
        if (op == "exp" and (x.bound or 0) > 64) or ("softmax" in op and not x.shape):
            return
        graph.add("f32", x.shape, None if smooth else x.bound, op, x)
    elif x.dtype == "i32":
        graph.add("i32", x.shape, 2**40, graph.draw(st.sampled_from(["neg", "abs", "sign", "not"])), x)
    else:
        graph.add("u32", x.shape, 2**40, "not", x)


def _cast(graph: _Graph) -> None:
    x = graph.pick(lambda value: value.exact)
    if x is None or x.bound is None:
        return
    to = graph.draw(st.sampled_from(["f32", "i32", "u32", "bool"]))
    if to == "f32" and x.dtype != "bool" and x.bound >= EXACT_LIMIT:
        return
    # A negative number becomes a large one as u32, and 0 from a float.
    bound = 1 if to == "bool" else x.bound if to != "u32" or x.dtype == "f32" else 2**40
    graph.add(to, x.shape, bound, "cast", x, dtype=to)


def _reduce(graph: _Graph) -> None:
    x = graph.pick(lambda value: value.exact and bool(value.shape))
    if x is None or x.bound is None:
        return
    axis, keep = graph.draw(st.integers(-len(x.shape), -1)), graph.draw(st.booleans())
    place = len(x.shape) + axis
    shape = (*x.shape[:place], *((1,) if keep else ()), *x.shape[place + 1 :])
    if x.dtype == "bool":
        graph.add(
            "bool", shape, 1, graph.draw(st.sampled_from(["reduce_any", "reduce_all"])), x, axis=axis, keepdims=keep
        )
        return
    ops = ["reduce_max", "reduce_min", "reduce_sum", "reduce_argmax", "reduce_argmin"]
    if x.dtype == "f32":
        ops += ["reduce_mean", "logsumexp", "entropy"]
    op = graph.draw(st.sampled_from(ops))
    bound: int | None = x.bound
    if op == "reduce_sum":
        bound = x.bound * x.shape[place]
        if x.dtype == "f32" and bound >= EXACT_LIMIT:
            return
    if op in ("reduce_mean", "logsumexp", "entropy"):
        bound = None
    of_index = op.startswith("reduce_arg")
    graph.add(
        "u32" if of_index else x.dtype, shape, x.shape[place] if of_index else bound, op, x, axis=axis, keepdims=keep
    )


def _order(graph: _Graph) -> None:
    x = graph.pick(lambda value: _exact_numbers(value) and bool(value.shape))
    if x is None:
        return
    op = graph.draw(st.sampled_from(["sort", "top_k", "cumsum"]))
    if op == "cumsum":
        bound = (x.bound or 0) * x.shape[-1]
        if x.dtype != "f32" or bound < EXACT_LIMIT:
            graph.add(x.dtype, x.shape, bound, "cumsum", x)
        return
    count = graph.draw(st.integers(1, x.shape[-1]))
    attributes = {"k": count} if op == "top_k" else {"descending": graph.draw(st.booleans())}
    shape = (*x.shape[:-1], count) if op == "top_k" else x.shape
    node = graph.wire.add(op, x.reference, **attributes)
    graph.values += [Made([node, 0], x.dtype, shape, x.bound), Made([node, 1], "u32", shape, x.shape[-1])]


def _index(graph: _Graph) -> None:
    x = graph.pick(lambda value: bool(value.shape))
    indices = graph.pick(lambda value: value.dtype in ("i32", "u32"))
    if x is None or indices is None:
        return
    if graph.draw(st.booleans()):
        graph.add(x.dtype, indices.shape + x.shape[1:], x.bound, "gather", x, indices)
    elif indices.shape[: len(x.shape) - 1] == x.shape[:-1]:
        graph.add(x.dtype, indices.shape, x.bound, "take_along", x, indices)
        if len(indices.shape) == len(x.shape) and _exact_numbers(x):
            updates = graph.pick(
                lambda value: value.dtype == x.dtype and value.shape in ((), indices.shape) and value.exact
            )
            if updates is not None and max(x.bound or 0, updates.bound or 0) * (1 + indices.shape[-1]) < EXACT_LIMIT:
                bound = max(x.bound or 0, updates.bound or 0) * (1 + indices.shape[-1])
                mode = graph.draw(st.sampled_from(["set", "add", "min", "max"]))
                graph.add(x.dtype, x.shape, bound, "scatter", x, indices, updates, mode=mode)


def _structure(graph: _Graph) -> None:
    x = graph.pick(lambda value: bool(value.shape))
    if x is None:
        return
    axis = graph.draw(st.integers(-len(x.shape), -1))
    place = len(x.shape) + axis
    extent = x.shape[place]
    match graph.draw(st.sampled_from(["reshape", "slice", "index", "concat", "stack", "broadcast"])):
        case "reshape":
            shape = graph.draw(st.sampled_from([(prod(x.shape),), (prod(x.shape), 1), (1, *x.shape), x.shape[::-1]]))
            graph.add(x.dtype, shape, x.bound, "reshape", x, shape=list(shape))
        case "slice":
            start = graph.draw(st.integers(0, extent - 1))
            step = graph.draw(st.integers(1, 3))
            shape = (*x.shape[:place], len(range(start, extent, step)), *x.shape[place + 1 :])
            graph.add(x.dtype, shape, x.bound, "slice", x, axis=axis, start=start, step=step)
        case "index":
            shape = (*x.shape[:place], *x.shape[place + 1 :])
            graph.add(x.dtype, shape, x.bound, "index", x, axis=axis, at=graph.draw(st.integers(0, extent - 1)))
        case "broadcast":
            graph.add(x.dtype, (2, *x.shape), x.bound, "broadcast", x, shape=[2, *x.shape])
        case joined:
            y = graph.pick(lambda value: value.dtype == x.dtype and value.shape == x.shape)
            assert y is not None
            bound = max(x.bound, y.bound) if x.bound is not None and y.bound is not None else None
            size = (extent * 2,) if joined == "concat" else (2, extent)
            shape = (*x.shape[:place], *size, *x.shape[place + 1 :])
            graph.add(x.dtype, shape, bound, joined, x, y, axis=place)


def _bits(graph: _Graph) -> None:
    x = graph.pick(lambda value: value.dtype == "bool" and bool(value.shape))
    if x is not None:
        words = (*x.shape[:-1], -(-x.shape[-1] // 32))
        graph.add("u32", words, 2**40, "pack_bits", x)
        graph.add("bool", x.shape, 1, "unpack_bits", graph.values[-1], size=x.shape[-1])


def _random(graph: _Graph) -> None:
    shape = tuple(graph.draw(st.lists(st.sampled_from([1, 2, 3, 7]), max_size=2)))
    lead = (graph.rows,) if graph.rows > 1 else ()
    graph.add("f32", lead + shape, None, graph.draw(st.sampled_from(["uniform", "gumbel"])), shape=list(shape))
    graph.add("u32", (graph.draw(st.integers(1, 40)),), 40, "iota", size=graph.draw(st.just(40)))
    graph.values[-1] = Made(graph.values[-1].reference, "u32", (40,), 40)


_STEPS = (_arithmetic, _arithmetic, _integer, _compare, _select, _unary, _cast, _reduce, _order, _index, _structure,
          _structure, _bits, _random)  # fmt: skip


@st.composite
def cases(draw: Draw, most: int = 24) -> Case:
    graph = _Graph(draw, draw(st.integers(1, 3)), draw(st.sampled_from([5, 33, 64])))
    graph.logits()
    for _ in range(draw(st.integers(1, 3))):
        graph.parameter()
    for _ in range(draw(st.integers(most // 2, most))):
        draw(st.sampled_from(_STEPS))(graph)
    # The last values are made of most others.
    late = graph.values[len(graph.values) // 2 :]
    outputs = [late[-1], *draw(st.lists(st.sampled_from(late), max_size=4))]
    text = graph.wire.text(*(value.reference for value in outputs))
    return Case(text, tuple(graph.parameters), graph.rows, graph.vocabulary)
