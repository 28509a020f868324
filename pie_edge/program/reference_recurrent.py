"""What ops with recurrent state mean, in plain NumPy: the part of ``reference.py`` that goes token by token."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pie_edge.program.ops import Op

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class _Sequence:
    """One sequence of a step: its rows, and where its state lies (``StepInputs`` says what each is)."""

    rows: slice
    source: int
    home: int
    fold: int
    start: int
    replayed: int
    folded: int

    def places(self, length: int) -> tuple[Array, Array]:
        """Its last ``length`` rows, and each one's row of the tail."""
        rows = np.arange(max(self.rows.stop - length, self.rows.start), self.rows.stop)
        return rows, (self.start + rows - self.rows.start) % length

    def before(self, tail: Array, count: int) -> Array:
        """[count, C]: the ``count`` tokens before its first row, from the tail; zeros before the context began."""
        places = self.start - count + np.arange(count)
        return np.where(places[:, None] >= 0, tail[self.home, places % tail.shape[1]], np.float32(0))


def _sequences(query_starts: Array, slots: Array, spans: Array) -> Iterator[_Sequence]:
    for s in range(len(query_starts) - 1):
        rows = slice(int(query_starts[s]), int(query_starts[s + 1]))
        yield _Sequence(rows, *(int(n) for n in (*slots[s], *spans[s])))


def short_conv(
    act: Callable[[Array], Array], x: Array, weight: Array, tail: Array, *fields: Array
) -> tuple[Array, ...]:
    starts, slots, spans, *bias = fields
    y, width = np.zeros_like(x), weight.shape[1]
    for sequence in _sequences(starts, slots, spans):
        rows = x[sequence.rows]
        seen = np.concatenate([sequence.before(tail, width - 1), rows])
        y[sequence.rows] = sum(weight[:, j] * seen[j : j + len(rows)] for j in range(width))
    return (act(y + bias[0] if bias else y),)


def tail_append(op: Op, x: Array, starts: Array, slots: Array, spans: Array, tail: Array) -> tuple[Array, ...]:
    for sequence in _sequences(starts, slots, spans):
        rows, places = sequence.places(tail.shape[1])
        tail[sequence.home, places] = x[rows]
    return (tail,)


def gated_delta(
    op: Op, qkv: Array, a: Array, b: Array, decay: Array, dt_bias: Array, *rest: Array
) -> tuple[Array, ...]:
    *tails, starts, slots, spans, state = rest
    rate = -np.exp(decay) if op.attribute("log_decay") else decay
    y = np.zeros((len(qkv), state.shape[1] * state.shape[3]), np.float32)
    for sequence in _sequences(starts, slots, spans):
        given = ((qkv, tails[0]), (a, tails[1]), (b, tails[2]))
        tokens = [np.concatenate([sequence.before(tail, sequence.replayed), x[sequence.rows]]) for x, tail in given]
        keep = np.exp(rate * softplus(tokens[1] + dt_bias))
        learn = 1 / (1 + np.exp(-tokens[2]))
        s = state[sequence.source].copy() if sequence.source else np.zeros_like(state[0])
        found = []
        if sequence.fold and sequence.folded == 0:
            state[sequence.fold] = s
        for n in range(len(keep)):
            q, k, v = _heads(op, tokens[0][n], s.shape)
            s = s * keep[n][:, None, None]
            wanted = learn[n][:, None] * (v - np.einsum("hd,hdv->hv", k, s))
            s = s + k[:, :, None] * wanted[:, None, :]
            found.append(np.einsum("hd,hdv->hv", q, s).reshape(-1))
            if sequence.fold and n + 1 == sequence.folded:
                state[sequence.fold] = s
        state[sequence.home] = s
        y[sequence.rows] = np.array(found, np.float32).reshape(-1, y.shape[1])[sequence.replayed :]
    return y, state


def _heads(op: Op, qkv: Array, shape: tuple[int, ...]) -> tuple[Array, Array, Array]:
    """A token's queries, keys and values, each [value heads, ·]; the first two of unit length."""
    heads, key_heads, width = shape[0], op.integer("key_heads"), op.integer("key_dim")
    q, k, v = np.split(qkv, [key_heads * width, 2 * key_heads * width])

    def unit(x: Array) -> Array:
        by_head = x.reshape(key_heads, width)
        length = np.sqrt((by_head * by_head).sum(axis=-1, keepdims=True) + np.float32(op.number("eps")))
        shared = heads // key_heads
        return (
            np.tile(by_head / length, (shared, 1)) if op.attribute("tiled") else np.repeat(by_head / length, shared, 0)
        )

    return unit(q) / np.float32(np.sqrt(width)), unit(k), v.reshape(heads, -1)


def softplus(x: Array) -> Array:
    return np.asarray(np.logaddexp(np.float32(0), x), np.float32)
