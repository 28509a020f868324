"""What an epilogue may compute. Every function makes one node, except the few at the end that combine some.

Shapes are those of one pass. ``axis`` may be negative. Where a tensor is wanted a number or a list will do: numbers are part
of the epilogue, lists and ``param(…)`` come with each pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from inferlet.errors import EpilogueError
from inferlet.eta import intrinsics
from inferlet.eta.tensor import Operand, Tensor, apply, as_tensor, author_line, param

Length = int | str
"""A number, or ``intrinsics.VOCAB``."""

# Entry by entry. Operators do the rest: + - * / // % ** & | ^ ~ << >> and comparisons.


def exp(x: Operand) -> Tensor:
    return apply("exp", x)


def log(x: Operand) -> Tensor:
    """Natural logarithm; −inf at 0."""
    return apply("log", x)


def log1p(x: Operand) -> Tensor:
    return apply("log1p", x)


def sqrt(x: Operand) -> Tensor:
    return apply("sqrt", x)


def tanh(x: Operand) -> Tensor:
    return apply("tanh", x)


def sigmoid(x: Operand) -> Tensor:
    return apply("sigmoid", x)


def floor(x: Operand) -> Tensor:
    return apply("floor", x)


def ceil(x: Operand) -> Tensor:
    return apply("ceil", x)


def round_(x: Operand) -> Tensor:
    """Nearest, halves to even."""
    return apply("round", x)


def abs_(x: Operand) -> Tensor:
    return apply("abs", x)


def sign(x: Operand) -> Tensor:
    return apply("sign", x)


def minimum(x: Operand, y: Operand) -> Tensor:
    return apply("minimum", x, y)


def maximum(x: Operand, y: Operand) -> Tensor:
    return apply("maximum", x, y)


def eq(x: Operand, y: Operand) -> Tensor:
    return apply("eq", x, y)


def ne(x: Operand, y: Operand) -> Tensor:
    return apply("ne", x, y)


def lt(x: Operand, y: Operand) -> Tensor:
    return apply("lt", x, y)


def le(x: Operand, y: Operand) -> Tensor:
    return apply("le", x, y)


def gt(x: Operand, y: Operand) -> Tensor:
    return apply("gt", x, y)


def ge(x: Operand, y: Operand) -> Tensor:
    return apply("ge", x, y)


def and_(x: Operand, y: Operand) -> Tensor:
    return apply("and", x, y)


def or_(x: Operand, y: Operand) -> Tensor:
    return apply("or", x, y)


def xor(x: Operand, y: Operand) -> Tensor:
    return apply("xor", x, y)


def not_(x: Operand) -> Tensor:
    return apply("not", x)


def select(condition: Operand, x: Operand, y: Operand) -> Tensor:
    """x where the condition holds, else y."""
    return apply("select", condition, x, y)


where = select


def cast(x: Operand, kind: str) -> Tensor:
    """To another ``dtype``. Float to integer truncates and saturates; to bool is "not zero"."""
    return apply("cast", x, dtype=str(getattr(kind, "value", kind)))


# Along an axis.


def reduce_max(x: Operand, axis: int = -1, keepdims: bool = False) -> Tensor:
    return apply("reduce_max", x, axis=axis, keepdims=keepdims)


def reduce_min(x: Operand, axis: int = -1, keepdims: bool = False) -> Tensor:
    return apply("reduce_min", x, axis=axis, keepdims=keepdims)


def reduce_sum(x: Operand, axis: int = -1, keepdims: bool = False) -> Tensor:
    return apply("reduce_sum", x, axis=axis, keepdims=keepdims)


def reduce_mean(x: Operand, axis: int = -1, keepdims: bool = False) -> Tensor:
    return apply("reduce_mean", x, axis=axis, keepdims=keepdims)


def reduce_argmax(x: Operand, axis: int = -1, keepdims: bool = False) -> Tensor:
    """Where the largest entry is, u32; the first of equals."""
    return apply("reduce_argmax", x, axis=axis, keepdims=keepdims)


def reduce_argmin(x: Operand, axis: int = -1, keepdims: bool = False) -> Tensor:
    return apply("reduce_argmin", x, axis=axis, keepdims=keepdims)


def reduce_any(x: Operand, axis: int = -1, keepdims: bool = False) -> Tensor:
    return apply("reduce_any", x, axis=axis, keepdims=keepdims)


def reduce_all(x: Operand, axis: int = -1, keepdims: bool = False) -> Tensor:
    return apply("reduce_all", x, axis=axis, keepdims=keepdims)


def logsumexp(x: Operand, axis: int = -1, keepdims: bool = False) -> Tensor:
    return apply("logsumexp", x, axis=axis, keepdims=keepdims)


def entropy(logits: Operand, axis: int = -1, keepdims: bool = False) -> Tensor:
    """Of softmax(logits), in nats."""
    return apply("entropy", logits, axis=axis, keepdims=keepdims)


def softmax(x: Operand, axis: int = -1) -> Tensor:
    return apply("softmax", x, axis=axis)


def log_softmax(x: Operand, axis: int = -1) -> Tensor:
    return apply("log_softmax", x, axis=axis)


def cumsum(x: Operand, axis: int = -1) -> Tensor:
    return apply("cumsum", x, axis=axis)


# Along the last axis.


def top_k(x: Operand, k: int) -> tuple[Tensor, Tensor]:
    """The k largest entries in falling order, and their indices (u32)."""
    values = apply("top_k", x, k=k)
    return values, Tensor(values.node, 1)


def sort(x: Operand, descending: bool = False) -> tuple[Tensor, Tensor]:
    """The entries in order, and the indices they had (u32). Stable."""
    values = apply("sort", x, descending=descending)
    return values, Tensor(values.node, 1)


def kth_largest(x: Operand, k: Operand, keepdims: bool = False) -> Tensor:
    return apply("kth_largest", x, k, keepdims=keepdims)


def nucleus(logits: Operand, p: Operand, keepdims: bool = False) -> Tensor:
    """The smallest logit of the nucleus: keep ``logits >= nucleus(logits, p)`` for top-p."""
    return apply("nucleus", logits, p, keepdims=keepdims)


def min_p(logits: Operand, p: Operand, keepdims: bool = False) -> Tensor:
    """The logit of p times the likeliest entry's probability."""
    return apply("min_p", logits, p, keepdims=keepdims)


def gumbel_max(logits: Operand, rows: int | None = None) -> Tensor:
    """A draw from softmax(logits), u32; each row of ``[rows, …]`` draws as it would in a pass of its own."""
    return apply("gumbel_max", logits, rows=rows)


def mask_logits(logits: Operand, words: Operand) -> Tensor:
    """−inf where the packed mask's bit is 0; ``words`` is u32, entry i is bit i % 32 of word i // 32."""
    return apply("mask_logits", logits, words)


def unpack_bits(words: Operand, size: Length) -> Tensor:
    return apply("unpack_bits", words, size=size)


def pack_bits(x: Operand) -> Tensor:
    return apply("pack_bits", x)


# Indices and shapes.


def iota(size: Length) -> Tensor:
    """0, 1, … size − 1, u32."""
    return apply("iota", size=size)


def gather(x: Operand, indices: Operand) -> Tensor:
    """x[indices] along the first axis. An index out of range reads zero."""
    return apply("gather", x, indices)


def take_along(x: Operand, indices: Operand) -> Tensor:
    """From each row's last axis: x [*lead, n], indices [*lead, …]."""
    return apply("take_along", x, indices)


def scatter(x: Operand, indices: Operand, updates: Operand, mode: str = "set") -> Tensor:
    """x with its last axis ``set`` to updates at the indices, or ``add``, ``min``, ``max`` with them."""
    return apply("scatter", x, indices, updates, mode=mode)


def reshape(x: Operand, shape: Sequence[Length]) -> Tensor:
    """One axis may be −1."""
    return apply("reshape", x, shape=list(shape))


def broadcast(x: Operand, shape: Sequence[Length]) -> Tensor:
    return apply("broadcast", x, shape=list(shape))


def slice_(
    x: Operand, start: Length | None = None, stop: Length | None = None, step: int = 1, axis: int = -1
) -> Tensor:
    return apply("slice", x, start=start, stop=stop, step=step, axis=axis)


def concat(xs: Sequence[Operand], axis: int = 0) -> Tensor:
    return apply("concat", *xs, axis=axis)


def stack(xs: Sequence[Operand], axis: int = 0) -> Tensor:
    return apply("stack", *xs, axis=axis)


# Combinations.


def keep(logits: Operand, threshold: Operand) -> Tensor:
    """−inf below the threshold, which has one entry a row (``keepdims=True``) or is a number."""
    row = as_tensor(logits)
    return select(row >= threshold, row, -inf)


def sample(
    logits: Operand | None = None,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    mask: Any = None,
) -> Tensor:
    """A token, u32: drawn from the logits (by default the last row's) narrowed by top-k, then top-p, then min-p.

    Temperature 0 takes the likeliest; ``top_k`` 0, ``top_p`` 1 and ``min_p`` 0 are off; ``mask`` is a packed bit mask of
    allowed tokens. The settings are parameters: passes with other settings share the epilogue.
    """
    _check_settings(temperature, top_k, top_p, min_p)
    x = intrinsics.logits() if logits is None else as_tensor(logits)
    if mask is not None:
        x = mask_logits(x, mask if isinstance(mask, Tensor) else param(mask, "u32"))
    if temperature == 0:
        return reduce_argmax(x)
    x = x / param(float(temperature))
    if top_k:
        x = keep(x, kth_largest(x, param(top_k, "u32"), keepdims=True))
    if top_p < 1:
        x = keep(x, nucleus(x, param(float(top_p)), keepdims=True))
    if min_p:
        x = keep(x, apply("min_p", x, param(float(min_p)), keepdims=True))
    return gumbel_max(x)


def _check_settings(temperature: float, top_k: int, top_p: float, min_p: float) -> None:
    wrong = [
        f"{name} is {value}; give {wanted}"
        for name, value, good, wanted in (
            ("temperature", temperature, 0 <= temperature < inf, "0 (the likeliest token) or more"),
            ("top_k", top_k, 0 <= top_k < 2**31, "0 (off) or how many tokens to keep"),
            ("top_p", top_p, 0 < top_p <= 1, "a probability above 0; 1 is off"),
            ("min_p", min_p, 0 <= min_p <= 1, "a share of the likeliest token's probability; 0 is off"),
        )
        if not good
    ]
    if wrong:
        raise EpilogueError(f"{author_line()}: {'; '.join(wrong)}")
