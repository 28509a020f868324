"""What is measured for ``tuning.Tuning``: MLX's own ops beside our kernels, at several sizes, in chains whose links each read
what the one before gave."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import cycle, islice

import mlx.core as mx
import numpy as np

from pie_edge.backends.metal.epilogues import algorithms, nodes
from pie_edge.backends.metal.launch import Launcher
from pie_edge.backends.metal.ops import expert_linear, linear, products
from pie_edge.backends.metal.tuning import EXTENTS, ROWS
from pie_edge.backends.metal.weights import Form, Matrix
from pie_edge.program.encodings import DType
from pie_edge.program.node_types import Element
from pie_edge.program.nodes import PREFIX
from pie_edge.program.ops import Op
from pie_edge.sampling.dialects.kernel import Call, Place
from pie_edge.sampling.dialects.scalar import Memory

LINKS = 8
_BEYOND = 64 << 20
"""Bytes that chains go through before they come to a matrix again: more than the caches of any Mac, as a model's weights are."""
_WIDTH = 2048
_EXPERTS, _CHOSEN, _EXPERT_WIDTH = 32, 4, 1024
_SHARE, _COUNT = 0.9, 40
"""Of a nucleus and of the largest, as people draw."""

Arrays = tuple[mx.array, ...]
Chain = Callable[[Arrays, bool, Launcher], mx.array]
"""The end of a chain that begins with these, not yet computed, by MLX or by our kernels."""


@dataclass(frozen=True)
class Contest:
    field: str
    """Of ``Tuning``: MLX's at each of ``sizes``."""
    what: str
    unit: str
    sizes: tuple[int, ...]
    given: Callable[[int], Arrays]
    """What a chain of a size begins with."""
    chain: Chain


def contests() -> tuple[Contest, ...]:
    """Their matrices are made here."""
    codes, dense = _many(partial(_codes, _WIDTH, _WIDTH)), _many(_dense)
    experts = _many(partial(_codes, _EXPERTS * _EXPERT_WIDTH, _EXPERT_WIDTH))
    orders = (
        Contest(f"{node}_by_mlx", f"{node} of a row", "entries", EXTENTS, partial(_row, node), partial(_ordered, node))
        for node in sorted(nodes.KINDS)
    )
    return (
        Contest("by_mlx", "linear, codes", "rows", ROWS, _rows, partial(_products, cycle(codes))),
        Contest("dense_by_mlx", "linear, dense", "rows", ROWS, _rows, partial(_products, cycle(dense))),
        Contest("experts_by_mlx", "linear, experts' codes", "rows", ROWS, _routed, partial(_experts, cycle(experts))),
        *orders,
    )


def _many(make: Callable[[], Matrix]) -> list[Matrix]:
    """The same one, in many places."""
    first = make()
    found = [first, *(make() for _ in range(_BEYOND // first.nbytes))]
    mx.eval(*(array for matrix in found for array in matrix.arrays()))
    return found


def _dense() -> Matrix:
    """What snapshots that aren't quantised have."""
    return Matrix(Form(_WIDTH, DType.BF16), mx.full((_WIDTH, _WIDTH), 1 / _WIDTH, mx.bfloat16))


def _codes(rows: int, columns: int) -> Matrix:
    """Four bits in groups of 64 with halves: what MLX snapshots mostly have."""
    form = Form(columns, None, 4, 64, DType.F16, biased=True)
    words = mx.arange(rows * columns // 8, dtype=mx.uint32).reshape(rows, -1) * mx.array(2654435761, mx.uint32)
    scales = mx.full((rows, columns // 64), 1 / 256, mx.float16)
    return Matrix(form, words, scales, -8 * scales)


def _rows(count: int) -> Arrays:
    return (mx.ones((count, _WIDTH)),)


def _products(matrices: Iterator[Matrix], given: Arrays, by_mlx: bool, launcher: Launcher) -> mx.array:
    (x,) = given
    for matrix in islice(matrices, LINKS):
        x = products.by_mlx(x, matrix) if by_mlx else linear.by_hand(launcher, x, matrix, None)[0]
    return x


def _routed(count: int) -> Arrays:
    """Rows, each one's experts, and the order that goes by expert."""
    experts = np.arange(count * _CHOSEN, dtype=np.uint32).reshape(count, _CHOSEN) * np.uint32(7) % np.uint32(_EXPERTS)
    order = np.argsort(experts.reshape(-1), kind="stable").astype(np.uint32).reshape(experts.shape)
    return mx.ones((count, _EXPERT_WIDTH)), mx.array(experts), mx.array(order)


def _experts(matrices: Iterator[Matrix], given: Arrays, by_mlx: bool, launcher: Launcher) -> mx.array:
    x, experts, order = given
    for matrix in islice(matrices, LINKS):
        if by_mlx:
            y = expert_linear.by_mlx(x, experts, order, matrix, _EXPERTS)
        else:
            y = expert_linear.by_hand(launcher, x, experts, matrix, _EXPERTS, None)
        x = y[:, :_EXPERT_WIDTH]
    return x


@cache
def _row(node: str, extent: int) -> Arrays:
    """Entries, and what the node is told beside."""
    told = np.array([_SHARE], np.float32) if node == "nucleus" else np.array([_COUNT], np.uint32)
    return mx.array(np.random.default_rng(1).normal(0, 3, extent).astype(np.float32)), mx.array(told.view(np.uint32))


def _ordered(node: str, given: Arrays, by_mlx: bool, launcher: Launcher) -> mx.array:
    x, told = given
    call = _call(node, x.size)
    for _ in range(LINKS):
        known = {"x": mx.view(x, mx.uint32), "argument": told}
        if by_mlx:
            found = algorithms.run(call, 1, tuple(known[place.name] for place in call.operands))[0]
        else:
            found = nodes.run(call, 1, known, launcher)["y"]
        first = mx.view(found[:1], mx.float32)
        # The same row again, but one that waits for what was found.
        x = x + 0 * first
    return first


def _call(node: str, extent: int) -> Call:
    """Of a row in one pass."""
    kept = {"top_k": _COUNT, "sort": extent}.get(node, 1)
    results = ("y", "places") if node in ("top_k", "sort") else ("y",)
    operands = ("x",) if len(results) == 2 else ("x", "argument")
    attributes = {"top_k": (("k", _COUNT),), "sort": (("descending", True),)}.get(node, ())
    element = Element.F32 if node == "nucleus" else Element.U32
    sizes = {"x": extent, "argument": 1, "y": kept, "places": kept, "scratch": 2 * extent}
    place = {name: Place(name, Memory.ARENA, 0, size, False) for name, size in sizes.items()}
    shapes = {"x": (extent,), "argument": (), "y": (kept,), "places": (kept,)}
    elements = {"x": Element.F32, "argument": element, "y": Element.F32, "places": Element.U32}
    names = (*operands, *results)
    return Call(
        Op(PREFIX + node, operands, results, attributes),
        tuple(place[name] for name in operands),
        tuple(place[name] for name in results),
        tuple(shapes[name] for name in names),
        tuple(elements[name] for name in names),
        place["scratch"],
    )
