"""What each epilogue node means, in NumPy: the oracle for every backend, and how the cpu backend runs epilogues.

Arrays have a leading batch axis, one entry a pass, and nodes map over it (``nodes.py``). Nothing is copied that needn't
be: inputs are views of the caller's memory, ``logits`` of neighbouring rows is one too, and values are dropped after
their last use. Sums whose rounding decides a token (nucleus, cumsum) are made in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pie_edge.program import node_reference_random as random
from pie_edge.program import node_reference_rows as rows
from pie_edge.program.encodings import DType
from pie_edge.program.nodes import KEEP_TOKEN, PREFIX, TAKE_KEPT
from pie_edge.program.ops import Op, Program, Role, Value

Array = npt.NDArray[Any]

_DTYPES = {DType.F32: np.float32, DType.I32: np.int32, DType.U32: np.uint32, DType.U8: np.bool_}


@dataclass(frozen=True, slots=True)
class Site:
    """One op of a call: ``shape`` is its result's without the batch axis, ``passes`` the batch's true length."""

    op: Op
    shape: tuple[int, ...]
    dtype: Any
    passes: int


Function = Callable[..., Any]
"""Over plain arrays."""
Meaning = Callable[..., Any]
"""Over a Site and its op's arrays; gives the result, or a tuple of them."""


def run_nodes(program: Program, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Run an epilogue's Program. ``arrays`` has its state and inputs, shaped as ``sampling/lower.py`` lists them.

    Returns its outputs by name, ``[passes, …]`` each; a bool output has dtype ``bool``, a byte an entry.
    """
    return NodeRunner(program)(arrays)


class NodeRunner:
    """An epilogue's Program made ready to run many times: ``runner(arrays)`` is ``run_nodes`` less the preparation."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._inputs = program.by_role(Role.STATE) + program.by_role(Role.INPUT)
        self._outputs = [value.name for value in program.by_role(Role.OUTPUT)]
        self._capacity = program.values[self._outputs[0]].shape[0]
        last = {name: index for index, op in enumerate(program.ops) for name in op.inputs}
        temps = {value.name for value in program.by_role(Role.TEMP)}
        self._steps = []
        for index, op in enumerate(program.ops):
            value = program.values[op.outputs[0]]
            dead = tuple(name for name in temps.intersection(op.inputs) if last[name] == index)
            meaning = MEANINGS[op.kind.removeprefix(PREFIX)]
            self._steps.append((op, meaning, value.shape[1:], _DTYPES[value.dtype], dead))

    def __call__(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """``arrays["counts"][0]`` passes, at least one."""
        passes = int(arrays["counts"][0])
        live = {value.name: self._given(value, arrays[value.name], passes) for value in self._inputs}
        with np.errstate(all="ignore"):
            for op, meaning, shape, dtype, dead in self._steps:
                found = meaning(Site(op, shape, dtype, passes), *(live[name] for name in op.inputs))
                live.update(zip(op.outputs, found if isinstance(found, tuple) else (found,), strict=True))
                for name in dead:
                    del live[name]
        return {name: live[name] for name in self._outputs}

    def _given(self, value: Value, array: Array, passes: int) -> Array:
        """A state as it is; an input's entries of the true passes, bools as bools."""
        if value.role is Role.STATE or value.name == "counts":
            return array
        view = array[: passes * (value.shape[0] // self._capacity)]
        return view != 0 if value.dtype is DType.U8 else view


def _aligned(*arrays: Array) -> list[Array]:
    """Arrays of one rank: passes first, then the pass's own axes aligned at the last one."""
    rank = max(array.ndim for array in arrays)
    return [
        array if array.ndim == rank else array.reshape(array.shape[0], *(1,) * (rank - array.ndim), *array.shape[1:])
        for array in arrays
    ]


def _elementwise(function: Function) -> Meaning:
    return lambda site, *arrays: np.asarray(function(*_aligned(*arrays)), dtype=site.dtype)


def _reducing(function: Function) -> Meaning:
    def meaning(site: Site, x: Array) -> Array:
        found = function(x, axis=site.op.integer("axis"), keepdims=site.op.attribute("keepdims"))
        return np.asarray(found, dtype=site.dtype)

    return meaning


def _along(function: Function) -> Meaning:
    return lambda site, x: np.asarray(function(x, axis=site.op.integer("axis")), dtype=site.dtype)


# Sources.


def _read_out(site: Site, state: Array, numbers: Array) -> Array:
    """The passes' rows: a view where they lie one after the other, as they do for one pass."""
    wanted = numbers.reshape(site.passes, -1)[:, -max(site.op.integer("rows"), 1) :].reshape(-1)
    first = int(wanted[0])
    neighbours = np.array_equal(wanted, np.arange(first, first + len(wanted)))
    found = state[first : first + len(wanted)] if neighbours else state[wanted]
    return found.reshape(site.passes, *site.shape)


def _position(site: Site, positions: Array) -> Array:
    kept = positions.reshape(site.passes, -1)[:, -max(site.op.integer("rows"), 1) :]
    return kept.reshape(site.passes, *site.shape)


def _keep_token(site: Site, x: Array, slots: Array, tokens: Array) -> Array:
    wanted = slots < len(tokens)
    tokens[slots[wanted]] = np.ascontiguousarray(x).view(np.uint32)[wanted]
    return tokens


def _take_kept(site: Site, given: Array, slots: Array, tokens: Array) -> Array:
    wanted = slots < len(tokens)
    found = np.array(given).view(np.uint32)
    found[wanted] = tokens[slots[wanted]]
    return found.view(site.dtype)


def _constant(site: Site) -> Array:
    return np.full(site.passes, site.op.attribute("value"), dtype=site.dtype)


def _iota(site: Site) -> Array:
    return np.broadcast_to(np.arange(site.shape[0], dtype=np.uint32), (site.passes, *site.shape))


def _streams(site: Site, draw_keys: Array, positions: Array) -> tuple[Array, Array]:
    """The streams of the op's draw: ``[passes]``, or ``[passes, rows]``."""
    count = site.op.integer("rows")
    kept = slice(-max(count, 1), None)
    shape = (site.passes, count) if count else (site.passes,)
    seeds = draw_keys.reshape(site.passes, -1, 2)[:, kept].reshape(*shape, 2)
    places = positions.reshape(site.passes, -1)[:, kept].reshape(shape)
    return random.streams(seeds, places, site.op.integer("draw"))


def _uniform(site: Site, draw_keys: Array, positions: Array) -> Array:
    streams = _streams(site, draw_keys, positions)
    count = int(np.prod(site.shape[1 if site.op.integer("rows") else 0 :], dtype=np.int64))
    return random.uniform(random.words(streams, count)).reshape(site.passes, *site.shape)


def _gumbel(site: Site, draw_keys: Array, positions: Array) -> Array:
    return random.gumbel(_uniform(site, draw_keys, positions))


def _gumbel_max(site: Site, x: Array, draw_keys: Array, positions: Array) -> Array:
    """argmax(x + gumbel) over the last axis."""
    low, high = (part.reshape(-1) for part in _streams(site, draw_keys, positions))
    flat = x.reshape(-1, x.shape[-1])
    owner, place = np.divmod(np.arange(len(flat)), len(flat) // len(low))
    drawn = random.gumbel_argmax(flat, (low[owner], high[owner]), place * x.shape[-1])
    return drawn.astype(np.uint32).reshape(site.passes, *site.shape)


# Elementwise.


def _divided(divide: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """Integer division whose result is 0 where the divisor is."""
    return lambda x, y: np.where(y == 0, np.zeros((), x.dtype), divide(x, np.where(y == 0, np.ones((), y.dtype), y)))


def _cast(site: Site, x: Array) -> Array:
    """Float to integer truncates and saturates, NaN becomes 0; integers wrap; anything to bool is "not zero"."""
    if site.dtype is np.bool_:
        return np.not_equal(x, 0)
    if x.dtype == np.float32 and site.dtype is not np.float32:
        bounds = np.iinfo(site.dtype)
        x = np.clip(np.trunc(np.nan_to_num(x.astype(np.float64), nan=0.0)), bounds.min, bounds.max)
    return np.asarray(x, dtype=site.dtype)


# Structure.


def _broadcast(site: Site, x: Array) -> Array:
    spread = x.reshape(site.passes, *(1,) * (len(site.shape) + 1 - x.ndim), *x.shape[1:])
    return np.broadcast_to(spread, (site.passes, *site.shape))


def _on_axis(axis: int, selected: int | slice) -> tuple[Any, ...]:
    """The index that selects on a negative axis and leaves the others alone."""
    return (..., selected, *(slice(None),) * (-axis - 1))


def _slice(site: Site, x: Array) -> Array:
    kept = slice(*(site.op.integer(name) for name in ("start", "stop", "step")))
    return np.asarray(x[_on_axis(site.op.integer("axis"), kept)])


def _index(site: Site, x: Array) -> Array:
    return np.asarray(x[_on_axis(site.op.integer("axis"), site.op.integer("at"))])


def _joined(join: Callable[..., Array]) -> Meaning:
    return lambda site, *parts: join(parts, axis=site.op.integer("axis"))


def _threshold(function: Callable[[Array, Any], Any]) -> Meaning:
    return lambda site, x, argument: rows.thresholds(function, x, argument).reshape(site.passes, *site.shape)


def _cumsum(x: Array, axis: int) -> Array:
    return np.cumsum(x, axis=axis, dtype=np.float64 if x.dtype == np.float32 else x.dtype)


def _power(x: Array, y: Array) -> Array:
    """Where the exponent is one number for all NumPy takes the square root for 0.5, which is another thing at −∞ and −0."""
    found: Array = np.power(x, np.array(np.broadcast_to(y, np.broadcast_shapes(x.shape, y.shape))))
    return found


_UNARY: Mapping[str, Function] = {
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "not": np.invert,
    "exp": np.exp,
    "log": np.log,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
}

_BINARY: Mapping[str, Function] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "floordiv": _divided(np.floor_divide),
    "mod": _divided(np.mod),
    "pow": _power,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": lambda x, y: np.left_shift(x, y & 31),
    "shr": lambda x, y: np.right_shift(x, y & 31),
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "select": np.where,
}

_REDUCTIONS: Mapping[str, Function] = {
    "reduce_max": np.max,
    "reduce_min": np.min,
    "reduce_sum": np.sum,
    "reduce_mean": np.mean,
    "reduce_argmax": np.argmax,
    "reduce_argmin": np.argmin,
    "reduce_any": np.any,
    "reduce_all": np.all,
    "logsumexp": rows.logsumexp,
    "entropy": rows.entropy,
}

MEANINGS: Mapping[str, Meaning] = {
    **{name: _elementwise(function) for name, function in (*_UNARY.items(), *_BINARY.items())},
    **{name: _reducing(function) for name, function in _REDUCTIONS.items()},
    "softmax": _along(rows.softmax),
    "log_softmax": _along(rows.log_softmax),
    "cumsum": _along(_cumsum),
    "kth_largest": _threshold(rows.kth_largest),
    "nucleus": _threshold(rows.nucleus),
    "min_p": _threshold(rows.min_p),
    "top_k": lambda site, x: rows.top_k(x, site.shape[-1]),
    "sort": lambda site, x: rows.sort(x, bool(site.op.attribute("descending"))),
    "gumbel_max": _gumbel_max,
    "mask_logits": lambda site, x, words: rows.mask_logits(x, words),
    "unpack_bits": lambda site, words: rows.unpack_bits(words, site.shape[-1]),
    "pack_bits": lambda site, x: rows.pack_bits(x),
    "gather": lambda site, x, indices: rows.gather(x, indices),
    "take_along": lambda site, x, indices: rows.take_along(x, indices),
    "scatter": lambda site, x, places, new: rows.scatter(x, places, new, str(site.op.attribute("mode"))),
    "logits": _read_out,
    "hidden": _read_out,
    "position": _position,
    KEEP_TOKEN: _keep_token,
    TAKE_KEPT: _take_kept,
    "constant": _constant,
    "iota": _iota,
    "uniform": _uniform,
    "gumbel": _gumbel,
    "cast": _cast,
    "reshape": lambda site, x: x.reshape(site.passes, *site.shape),
    "broadcast": _broadcast,
    "slice": _slice,
    "index": _index,
    "concat": _joined(np.concatenate),
    "stack": _joined(np.stack),
}
