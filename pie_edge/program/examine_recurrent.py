"""The part of backends' self-tests that has recurrent state: every kernel of it, on a step of two sequences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pie_edge.program import trace as ops
from pie_edge.program.ops import Value
from pie_edge.program.step import StepInputs
from pie_edge.program.trace import Trace
from pie_edge.program.trace_recurrent import Delta, gated_delta, short_conv

SLOTS, _TAIL, _TAPS, _KEY_HEADS, _HEADS = 5, 4, 3, 2, 4
Made = Callable[[str, tuple[int, ...]], Value]
"""Declares a weight or a state of this name and shape, and makes up what it holds."""


def with_states(step: StepInputs) -> StepInputs:
    """The first sequence begins and folds; the second goes on from another's slot and runs four tokens again."""
    start = step.row_index[step.query_starts[1]]
    return replace(step, state_slots=[0, 1, 2, 3, 4, 0], state_spans=[0, 0, 2, start, 4, 0])


def recurrent_ops(t: Trace, step: dict[str, Value], x: Value, weight: Made, state: Made, key: int = 6) -> list[Value]:
    """What each op gives, in order, from rows ``x``; ``key`` values for a head of keys, and of values."""
    columns = (2 * _KEY_HEADS + _HEADS) * key
    rows = ops.linear(t, x, weight("recurrent", (columns, x.shape[1])))
    a, b = (ops.linear(t, x, weight(f"recurrent_{name}", (_HEADS, x.shape[1]))) for name in ("a", "b"))
    conv, bias = weight("taps", (columns, _TAPS)), weight("taps_bias", (columns,))
    qkv = short_conv(t, rows, conv, step, state("taps_tail", (SLOTS, _TAIL, columns)), act="silu", bias=bias)
    delta = Delta(
        weight("decay", (_HEADS,)),
        weight("dt_bias", (_HEADS,)),
        state("delta", (SLOTS, _HEADS, key, key)),
        state("qkv_tail", (SLOTS, _TAIL, columns)),
        state("a_tail", (SLOTS, _TAIL, _HEADS)),
        state("b_tail", (SLOTS, _TAIL, _HEADS)),
        key_heads=_KEY_HEADS,
        log_decay=True,
    )
    # What runs again the second time is in part what was appended the first time.
    once, again = (gated_delta(t, qkv, a, b, step, replace(delta, tiled=tiled)) for tiled in (False, True))
    column = ops.linear(t, x, weight("column", (1, x.shape[1])))
    gated = ops.glu(t, once, again, act="sigmoid")
    return [rows, a, b, qkv, once, again, gated, column, ops.mul(t, once, again), ops.mul(t, gated, column)]
