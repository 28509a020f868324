"""What Metal's self-test runs beside that of all devices (``shared/examination.py``), whose rows are too few for tiles and whose
heads are too narrow for the delta rule's kernel. Products with codes and with halves are MLX's or ours, as the tuning has it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pie_edge.backends.shared import examination_epilogues
from pie_edge.backends.shared.examination import STEP, Paper, paper
from pie_edge.backends.shared.selftest import F32, Examination, Recorder, scattered, wave
from pie_edge.program import trace as ops
from pie_edge.program.encodings import Affine, Dense, DType, Encoding
from pie_edge.program.examine_recurrent import recurrent_ops
from pie_edge.program.step import StepLayout

ANSWERS = Path(__file__).with_name("examination.json")
_ROWS = (2, 3, 16, 70)
"""Of x: two and four at a time, one tile, and more than one."""
_OUTPUTS, _COLUMNS = 50, 128
_FORMATS: tuple[Encoding, ...] = (F32, Dense(DType.BF16), Affine(4, 64, DType.F16, None), Affine(4, 32, DType.F16, 8))
"""What MLX may multiply, and what it never does."""
_KEY = 32
"""Values of a head that fill a simdgroup."""


def papers(halves: bool) -> Iterator[Paper]:
    """``halves``: keys and values are float16."""
    yield paper(halves)
    yield Paper("products", _products(), ANSWERS, "products")
    yield from examination_epilogues.papers()


def _products() -> Examination:
    rec, layout = Recorder(), StepLayout(STEP.counts)
    t = rec.trace
    step = t.step(layout)
    weights = [rec.weight(f"w{n}", (_OUTPUTS, _COLUMNS), encoding) for n, encoding in enumerate(_FORMATS)]
    bias = rec.weight("bias", (_OUTPUTS,))
    for rows in _ROWS:
        x = rec.state(f"x{rows}", wave(rows * _COLUMNS, rows).reshape(rows, _COLUMNS))
        for weight in weights:
            rec.show(ops.linear(t, x, weight, bias))
    rows = step["token_src"].shape[0]
    x = rec.state("x", wave(rows * _COLUMNS, rows).reshape(rows, _COLUMNS))
    for value in recurrent_ops(t, step, x, rec.weight, rec.made_state, key=_KEY):
        rec.show(value)
    return Examination(rec.program(), rec.sources, rec.states, {"step": layout.pack(STEP).tobytes()}, digest=scattered)
