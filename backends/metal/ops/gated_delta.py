"""The gated delta rule, token by token."""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from pie_edge.backends.metal.context import Arrays, Context
from pie_edge.backends.metal.launch import Kernel, Launch
from pie_edge.backends.metal.ops.matrices import NOTHING
from pie_edge.backends.metal.ops.recurrent import Talk, table, talks
from pie_edge.program.ops import Op

_KERNEL = Kernel(
    "gated_delta",
    ("qkv", "a", "b", "decay", "dt_bias", "qkv_tail", "a_tail", "b_tail", "talks", "state", "numbers"),
    ("y", "homes", "folds"),
)


def ops(
    c: Context,
    op: Op,
    qkv: mx.array,
    a: mx.array,
    b: mx.array,
    decay: mx.array,
    dt_bias: mx.array,
    qkv_tail: mx.array,
    a_tail: mx.array,
    b_tail: mx.array,
    query_starts: mx.array,
    state_slots: mx.array,
    state_spans: mx.array,
    state: mx.array,
) -> Arrays:
    rate = -mx.exp(decay) if op.attribute("log_decay") else decay
    parts, kept = [], dict[int, mx.array]()
    for talk in talks(c, op):
        given = ((qkv, qkv_tail), (a, a_tail), (b, b_tail))
        tokens, steps, gates = (
            mx.concatenate([talk.before(tail, talk.replayed), x[talk.first : talk.first + talk.rows]])
            if talk.replayed
            else x[talk.first : talk.first + talk.rows]
            for x, tail in given
        )
        keep = mx.exp(rate * mx.logaddexp(steps + dt_bias, 0.0))
        initial = state[talk.source] if talk.source else mx.zeros(state.shape[1:])
        parts.append(_run(op, talk, _heads(op, tokens, state.shape), keep, mx.sigmoid(gates), initial, kept))
    if kept:
        # Computed first: while it is read the state counts as in use, and writing it would copy all of it.
        mx.eval(*parts, *kept.values())
        state[mx.array(np.array(list(kept), np.uint32))] = mx.stack(list(kept.values()))
    return mx.concatenate(parts), state


def _run(
    op: Op,
    talk: Talk,
    heads: tuple[mx.array, mx.array, mx.array],
    keep: mx.array,
    learn: mx.array,
    s: mx.array,
    kept: dict[int, mx.array],
) -> mx.array:
    """[rows, H·v] of one sequence; states that are to be kept go into ``kept``, by their slots."""
    q, k, v = heads
    found = []
    if talk.fold and talk.folded == 0:
        kept[talk.fold] = s
    for n in range(keep.shape[0]):
        s = s * keep[n][:, None, None]
        wanted = learn[n][:, None] * (v[n] - (k[n][:, None] @ s)[:, 0])
        s = s + k[n][:, :, None] * wanted[:, None]
        found.append((q[n][:, None] @ s).reshape(-1))
        if talk.fold and n + 1 == talk.folded:
            kept[talk.fold] = s
    kept[talk.home] = s
    rows = found[talk.replayed :]
    return mx.stack(rows) if rows else mx.zeros((0, s.shape[0] * s.shape[2]))


def _heads(op: Op, qkv: mx.array, shape: tuple[int, ...]) -> tuple[mx.array, mx.array, mx.array]:
    """Queries, keys and values of all tokens, each [tokens, value heads, ·]; the first two of unit length."""
    heads, key_heads, width = shape[1], op.integer("key_heads"), op.integer("key_dim")
    shared = heads // key_heads

    def unit(x: mx.array) -> mx.array:
        by_head = x.reshape(x.shape[0], key_heads, width)
        by_head = by_head / mx.sqrt((by_head * by_head).sum(axis=-1, keepdims=True) + op.number("eps"))
        if shared == 1:
            return by_head
        return mx.tile(by_head, (1, shared, 1)) if op.attribute("tiled") else mx.repeat(by_head, shared, axis=1)

    ends = key_heads * width, 2 * key_heads * width
    q, k, v = qkv[:, : ends[0]], qkv[:, ends[0] : ends[1]], qkv[:, ends[1] :]
    return unit(q) / float(np.sqrt(width)), unit(k), v.reshape(v.shape[0], heads, shape[3])


def kernel(c: Context, op: Op, qkv: mx.array, *rest: mx.array) -> Arrays:
    *given, _, _, _, state = rest
    _, heads, key_dim, value_dim = state.shape
    sequences = talks(c, op)
    if key_dim % 32:
        return ops(c, op, qkv, *rest)
    rows = qkv.shape[0]
    # A step may have nothing but tokens to run again: an array of nothing is none that a kernel can be given.
    fresh = [array if rows else NOTHING for array in (qkv, *given[:2])]
    constants = (
        *(("HEADS", heads), ("KEY_HEADS", op.integer("key_heads")), ("KEY_DIM", key_dim), ("VALUE_DIM", value_dim)),
        *(("WIDTH", qkv.shape[1]), ("LENGTH", given[-1].shape[1]), ("TILED", bool(op.attribute("tiled")))),
        ("LOG_DECAY", bool(op.attribute("log_decay"))),
    )
    kept = ((len(sequences), *state.shape[1:]), mx.float32)
    launch = Launch(
        _KERNEL,
        (*fresh, *given[2:], table(c, op), state, c.numbers(op.number("eps"))),
        (((max(rows, 1), heads * value_dim), mx.float32), kept, kept),
        (32, value_dim, len(sequences) * heads),
        (32, min(value_dim, 8), 1),
        constants,
    )
    y, homes, folds = c.launch(launch)
    for which, states in (("home", homes), ("fold", folds)):
        slots = [(getattr(talk, which), n) for n, talk in enumerate(sequences) if getattr(talk, which)]
        if slots:
            places, found = (mx.array(np.array(numbers, np.uint32)) for numbers in zip(*slots, strict=True))
            state[places] = mx.take(states, found, axis=0)
    return y[:rows], state
