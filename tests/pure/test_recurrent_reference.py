"""Ops with recurrent state: in one piece, in chunks, token by token, taken back and replayed, they give the same."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pie_edge.program import reference
from pie_edge.program.encodings import Dense, DType
from pie_edge.program.ops import Program
from pie_edge.program.step import Bucket, StepInputs, StepLayout
from pie_edge.program.trace import Trace
from pie_edge.program.trace_recurrent import Delta, gated_delta, short_conv
from tests.support.recurrent_context import RecurrentContext

Array = NDArray[np.float32]
SLOTS, TAIL, KEY_HEADS, HEADS, KEY, WIDTH, KERNEL = 5, 9, 2, 4, 6, 5, 4
COLUMNS = {"u": 2 * KEY_HEADS * KEY + HEADS * WIDTH, "a": HEADS, "b": HEADS}
REVERSIBLE = TAIL - KERNEL + 1
HOME, FOLD = 2, 3


def recorded(rows: int) -> tuple[Program, str]:
    """A convolution, then the delta rule on what it gives; and the result's name."""
    t = Trace("recurrent")
    step = t.step(StepLayout(Bucket(rows, 1, 1, 1, recurrent=1)))
    u, a, b = (t.state(name, DType.F32, (rows, columns)) for name, columns in COLUMNS.items())
    weight = t.weight("conv", (COLUMNS["u"], KERNEL), Dense(DType.F32))
    decay, dt_bias = (t.weight(name, (HEADS,), Dense(DType.F32)) for name in ("decay", "dt_bias"))
    widths = {"conv": COLUMNS["u"], "qkv": COLUMNS["u"], "a": HEADS, "b": HEADS}
    tails = {name: t.state(f"{name}_tail", DType.F32, (SLOTS, TAIL, width)) for name, width in widths.items()}
    state = t.state("state", DType.F32, (SLOTS, HEADS, KEY, WIDTH))
    qkv = short_conv(t, u, weight, step, tails["conv"], act="silu")
    delta = Delta(decay, dt_bias, state, tails["qkv"], tails["a"], tails["b"], KEY_HEADS, log_decay=True)
    y = gated_delta(t, qkv, a, b, step, delta)
    return t.build(), y.name


class Context:
    """One context's states and tails."""

    def __init__(self) -> None:
        rng = np.random.default_rng(7)
        self.arrays: dict[str, Array] = {
            "conv": rng.standard_normal((COLUMNS["u"], KERNEL)).astype(np.float32),
            "decay": rng.uniform(-1, 1, HEADS).astype(np.float32),
            "dt_bias": rng.standard_normal(HEADS).astype(np.float32),
        }
        for value in recorded(1)[0].values.values():
            if value.name == "state" or value.name.endswith("_tail"):
                # What another context left there must not matter.
                self.arrays[value.name] = np.full(value.shape, 3.0, np.float32)
        self.states = RecurrentContext(REVERSIBLE, HOME, FOLD)

    def run(self, start: int, tokens: Array) -> Array:
        rows, end = len(tokens), start + len(tokens)
        slots, spans = self.states.place(start, end)
        program, result = recorded(rows)
        inputs = StepInputs(
            token_src=[0] * rows,
            positions=range(start, end),
            row_index=range(start, end),
            write_slots=[0] * rows,
            query_starts=[0, rows],
            page_starts=[0, 0],
            pages=[],
            page_bits=[],
            fresh_bits=[],
            sample_rows=[],
            draw_keys=[],
            state_slots=slots,
            state_spans=spans,
        )
        parts = np.split(tokens, np.cumsum(list(COLUMNS.values()))[:-1], axis=1)
        arrays = self.arrays | dict(zip(COLUMNS, parts, strict=True))
        block = StepLayout(Bucket(rows, 1, 1, 1, recurrent=1)).pack(inputs)
        found = reference.run(program, arrays, block.tobytes())
        return np.asarray(found[result])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 12), st.integers(0, REVERSIBLE)), min_size=1, max_size=8))
def test_chunks_and_tokens_taken_back_give_what_one_piece_gives(moves: list[tuple[int, int]]) -> None:
    rng = np.random.default_rng(len(moves))
    context, kept = Context(), np.zeros((0, sum(COLUMNS.values())), np.float32)
    for count, back in moves:
        start = max(len(kept) - back, context.states.folded)
        tokens = rng.standard_normal((count, kept.shape[1])).astype(np.float32)
        kept = np.concatenate([kept[:start], tokens])
        got = context.run(start, tokens)
        whole = Context().run(0, kept)[start:]
        np.testing.assert_allclose(got, whole, atol=2e-5)
