"""Cases of ops with recurrent state: sequences that begin, go on, run again what their tail holds, and fold, all in one step."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from pie_edge.program import trace as ops
from pie_edge.program import trace_recurrent as recurrent
from pie_edge.program.encodings import Dense, DType, Encoding
from pie_edge.program.step import Bucket, StepInputs
from pie_edge.program.trace import Trace
from tests.backend.cases import F32, Builder, Case

LENGTH = 9
"""Of tails."""


@dataclass(frozen=True)
class Run:
    """A sequence: its rows, the tokens before them, those of them that run again, and after how many of all the fold comes."""

    rows: int
    start: int = 0
    replayed: int = 0
    folded: int | None = None
    apart: bool = False
    """Whether its state comes from a slot of another's."""


MIXED = (
    *(Run(1), Run(1, 30), Run(7), Run(5, 12, apart=True), Run(0, 4), Run(2, 3, replayed=3)),
    *(Run(1, 20, replayed=9, folded=4), Run(6, 11, replayed=2, folded=8), Run(3, 10, replayed=4, folded=0)),
    *(Run(0, 25, replayed=8, folded=8), Run(20, 7, folded=13), Run(4, 2, replayed=2, folded=1)),
)
ALONE = {
    "one row": (Run(1),),
    "one row more": (Run(1, 40),),
    "seven rows": (Run(7, 2),),
    "many rows": (Run(75, 5, replayed=5, folded=60),),
    "a fold alone": (Run(0, 12, replayed=6, folded=5),),
}


def step_of(runs: tuple[Run, ...], spare: int) -> tuple[StepInputs, Bucket, int]:
    """The step, a bucket with ``spare`` more of everything, and how many slots there are."""
    starts = [0, *itertools.accumulate(run.rows for run in runs)]
    slots, spans = [], []
    for index, run in enumerate(runs):
        home, fold, other = (3 * index + n for n in (1, 2, 3))
        base = run.start - run.replayed
        source = 0 if base == 0 else fold if run.replayed else other if run.apart else home
        slots += [source, home, 0 if run.folded is None else fold]
        spans += [run.start, run.replayed, run.folded or 0]
    places = [run.start + i for run in runs for i in range(run.rows)]
    step = StepInputs(
        token_src=[0] * starts[-1],
        positions=places,
        row_index=places,
        write_slots=[0] * starts[-1],
        query_starts=starts,
        page_starts=[0] * len(starts),
        pages=[],
        page_bits=[],
        fresh_bits=[],
        sample_rows=[],
        draw_keys=[],
        state_slots=slots,
        state_spans=spans,
    )
    bucket = Bucket(max(starts[-1], 1) + spare, len(runs) + spare, 1, 1, recurrent=1)
    return step, bucket, 3 * len(runs) + 1


def _short_conv(
    runs: tuple[Run, ...], columns: int, taps: int, act: str, *, encoding: Encoding = F32, bias: bool = False
) -> Builder:
    def make(case: Case) -> None:
        step, bucket, slots = step_of(runs, 2)
        fields = case.step(step, bucket)
        x = case.row_state("x", case.normal(bucket.rows, columns))
        tail = case.state("tail", case.normal(slots, LENGTH, columns))
        weight = case.weight("w", (columns, taps), encoding)
        extra = case.weight("b", (columns,), F32) if bias else None
        case.results = (recurrent.short_conv(case.trace, x, weight, fields, tail, act=act, bias=extra),)
        case.written = ("tail",)

    return make


@dataclass(frozen=True)
class Heads:
    keys: int
    values: int
    key_dim: int
    width: int
    tiled: bool = False
    log_decay: bool = True


def _gated_delta(runs: tuple[Run, ...], heads: Heads) -> Builder:
    def make(case: Case) -> None:
        step, bucket, slots = step_of(runs, 3)
        fields = case.step(step, bucket)
        widths = {
            "qkv": 2 * heads.keys * heads.key_dim + heads.values * heads.width,
            "a": heads.values,
            "b": heads.values,
        }
        given = {name: case.row_state(name, case.normal(bucket.rows, width)) for name, width in widths.items()}
        tails = {
            f"{name}_tail": case.state(f"{name}_tail", case.normal(slots, LENGTH, w)) for name, w in widths.items()
        }
        state = case.state("state", case.normal(slots, heads.values, heads.key_dim, heads.width))
        # Gates from shut to open, and decays from slow to fast; with log_decay unset a rate is below zero.
        case.states["a"] *= 8
        decay, dt_bias = (case.weight(name, (heads.values,), F32) for name in ("decay", "dt_bias"))
        if not heads.log_decay:
            held = case.sources["decay"].held["values"]
            np.negative(np.abs(held), out=held)
        delta = recurrent.Delta(
            decay, dt_bias, state, **tails, key_heads=heads.keys, log_decay=heads.log_decay, tiled=heads.tiled
        )
        case.results = (recurrent.gated_delta(case.trace, given["qkv"], given["a"], given["b"], fields, delta),)
        case.written = ("state", "qkv_tail", "a_tail", "b_tail")
        # A sum of key_dim products that mostly cancel, token after token.
        case.tolerance = 2e-5

    return make


def _mul(width: int, rows: int, by_row: bool) -> Builder:
    def make(case: Case) -> None:
        case.step(*step_of((Run(rows),), 2)[:2])
        x = case.row_state("x", case.normal(rows + 2, width))
        case.results = (ops.mul(case.trace, x, case.row_state("y", case.normal(rows + 2, 1 if by_row else width))),)

    return make


_SMALL = Heads(2, 4, 16, 16)
ALL: dict[str, Builder] = {
    "short_conv": _short_conv(MIXED, 64, 4, "silu"),
    "short_conv of three": _short_conv(MIXED, 70, 3, "none"),
    "short_conv of one": _short_conv(MIXED, 8, 1, "none"),
    "short_conv bias": _short_conv(MIXED, 13, 4, "silu", bias=True),
    "short_conv bf16": _short_conv(MIXED, 84, 4, "silu", encoding=Dense(DType.BF16), bias=True),
    "short_conv f16": _short_conv(MIXED, 40, 8, "gelu_tanh", encoding=Dense(DType.F16)),
    "gated_delta": _gated_delta(MIXED, _SMALL),
    "gated_delta tiled": _gated_delta(MIXED, Heads(2, 6, 8, 20, tiled=True, log_decay=False)),
    "gated_delta odd": _gated_delta(MIXED, Heads(3, 3, 6, 5)),
    "gated_delta of one": _gated_delta(MIXED, Heads(1, 1, 1, 1)),
    "gated_delta wide": _gated_delta(MIXED[4:8], Heads(1, 2, 128, 128)),
    "gated_delta wider": _gated_delta(MIXED[4:8], Heads(1, 1, 20, 150)),
    "gated_delta wide, a fold alone": _gated_delta(ALONE["a fold alone"], Heads(1, 2, 32, 32)),
    **{f"short_conv {name}": _short_conv(runs, 68, 4, "silu") for name, runs in ALONE.items()},
    **{f"gated_delta {name}": _gated_delta(runs, _SMALL) for name, runs in ALONE.items()},
    **{
        f"mul {'by row ' if by_row else ''}{width} {rows} rows": _mul(width, rows, by_row)
        for by_row in (False, True)
        for width, rows in ((1536, 1), (13, 7), (1, 5))
    },
}


def build(name: str) -> Case:
    case = Case(Trace(name), np.random.default_rng(sum(name.encode())))
    ALL[name](case)
    return case
