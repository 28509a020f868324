"""The self-test of every device that is no processor: every kernel once, when it is opened for the first time with a driver and
these kernels. That it passed is remembered (``remembered.py``). All have the same answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pie_edge.backends.shared.selftest import F32, Examination, Recorder, as_outputs, first_fault, stored, wave
from pie_edge.errors import BackendUnavailable
from pie_edge.program import trace as ops
from pie_edge.program import trace_experts as mixture
from pie_edge.program.encodings import Affine, Dense, DType, Encoding, Lookup
from pie_edge.program.examine_recurrent import recurrent_ops, with_states
from pie_edge.program.observe import observe
from pie_edge.program.ops import Program, Value
from pie_edge.program.step import LAYER_WORDS, Bucket, StepInputs, StepLayout

ANSWERS = Path(__file__).with_name("examination.json")
TOLERANCE = 4e-3
"""Of the largest value compared: what halves may bring. What goes wrong in a driver goes wrong by more."""

_WIDTH, _HEADS, _KV_HEADS, _PAGE, _VOCABULARY = 64, 4, 2, 8, 11
_FORMATS: tuple[Encoding, ...] = (
    Affine(4, 32, DType.F16, None),
    Affine(8, 32, DType.F16, 128),
    Dense(DType.F16),
    Dense(DType.BF16),
    F32,
)
_SCALES: tuple[Encoding, ...] = (
    *(Affine(4, 16, DType.F32, 8), Affine(8, 64, DType.F32, None)),
    *(Affine(5, 32, DType.F16, 16), Affine(6, 16, DType.F32, 32)),
    *(Lookup(32, scale, tuple(float(n - 8) for n in range(16))) for scale in (DType.BF16, DType.F16)),
)
"""Other groups, scales and codes, in one kernel each."""
_ENDS = 2
"""Mixtures that go on to the experts' second matrix, of few experts and of many. Others would only be the same kernel with
another encoding, which the first matrix has already: a software device takes a sixth of a second to compile each."""
_LONG = 66
"""Pages of the second sequence: more keys than any split takes."""
_LAST = _LONG * _PAGE - 1
_TWO_TALKS = StepInputs(
    token_src=[3, -1, 7, 10, 0],
    positions=[0, 1, 2, 3, _LAST],
    row_index=[0, 1, 2, 3, _LAST],
    write_slots=[8, 9, 10, 11, (1 + _LONG) * _PAGE + _PAGE - 1],
    query_starts=[0, 4, 5],
    page_starts=[0, 1, 1 + _LONG],
    pages=list(range(1, 2 + _LONG)),
    page_bits=[0b1111, *[0xFF] * _LONG],
    fresh_bits=[0b1111, *[0] * (_LONG - 1), 0x80],
    sample_rows=[4],
    draw_keys=[0] * 2,
    mass_rows=[3, 4],
    mass_starts=[0, 1, 1 + _LONG],
    adapters=[1, 0, 2, 2, 1],
    mass_layers=[3, *[0] * (LAYER_WORDS - 1)] * 2,
)
"""Four new rows of one sequence, and one row after many that are there: a prefill and a decode."""
STEP = with_states(_TWO_TALKS)


def examination(halves: bool) -> Examination:
    """``halves``: keys and values are float16."""
    rec, bucket = Recorder(), STEP.counts
    t, layout = rec.trace, StepLayout(bucket)
    step = t.step(layout)
    tokens = rec.state("tokens", np.array([5], np.uint32))
    embedded = [
        rec.show(ops.embed(t, rec.weight(f"e{i}", (_VOCABULARY, _WIDTH), e), step["token_src"], tokens, scale=2.0))
        for i, e in enumerate(_FORMATS)
    ]
    y = rec.show(ops.rms_norm(t, embedded[0], rec.weight("norm", (_WIDTH,)), eps=1e-5))
    attended = rec.show(_attend(rec, y, step, halves))
    residual, y = map(
        rec.show, ops.add_rms_norm(t, attended, embedded[1], rec.weight("norm2", (_WIDTH,)), eps=1e-5, offset=1.0)
    )
    for act in ("silu", "gelu_tanh", "gelu", "relu"):
        residual = rec.show(ops.add(t, residual, rec.show(ops.glu(t, y, attended, act=act))))
    gated = [ops.linear(t, y, rec.weight(name, (_WIDTH, _WIDTH), _FORMATS[0])) for name in ("gate", "up")]
    rec.show(ops.glu(t, *gated, act="silu"))
    rec.show(_between_norm_and_sum(rec, y))
    shifted = ops.layer_norm(t, residual, rec.weight("norm3", (_WIDTH,)), rec.weight("shift", (_WIDTH,)), eps=1e-5)
    rec.show(ops.scale(t, rec.show(ops.activation(t, rec.show(shifted), act="gelu_tanh")), factor=3.0))
    sampled = rec.show(ops.gather_rows(t, rec.show(ops.softcap(t, residual, cap=3.0)), step["sample_rows"]))
    for number, encoding in enumerate((*_FORMATS, *_SCALES)):
        # Nine rows: a row group, and one that is mostly empty.
        rec.show(ops.linear(t, sampled, rec.weight(f"w{number}", (9, _WIDTH), encoding), rec.weight("bias", (9,))))
    down = rec.state("lora_a", wave(2 * 8 * _WIDTH, 5).reshape(2, 8, _WIDTH))
    up = rec.state("lora_b", wave(2 * _WIDTH * 8, 6).reshape(2, _WIDTH, 8))
    inner = rec.show(ops.adapter_linear(t, y, down, step["adapters"]))
    rec.show(ops.adapter_linear(t, inner, up, step["adapters"], y))
    for number, encoding in enumerate((*_FORMATS, *_SCALES)):
        table = rec.weight(f"router{number}", (_VOCABULARY, 4 if number % 2 else 40))
        _mix(rec, ops.embed(t, table, step["token_src"], tokens), ops.scale(t, y, factor=0.05), number, encoding)
    kept = rec.state("kept", np.zeros((5, _WIDTH), np.float32))
    ops.store(t, residual, kept)
    rec.show(ops.gather_rows(t, kept, step["sample_rows"]))
    for value in recurrent_ops(t, step, y, rec.weight, rec.made_state):
        rec.show(value)
    return Examination(_observed(rec.program(), bucket), rec.sources, rec.states, {"step": layout.pack(STEP).tobytes()})


def _between_norm_and_sum(rec: Recorder, y: Value) -> Value:
    """A product that may do the norm before it and the sum after it: nothing between is shown."""
    t = rec.trace
    x = ops.scale(t, y, factor=0.5)
    normed = ops.rms_norm(t, x, rec.weight("norm4", (_WIDTH,)), eps=1e-5)
    return ops.add(t, ops.linear(t, normed, rec.weight("between", (_WIDTH, _WIDTH), _FORMATS[0])), x)


def _mix(rec: Recorder, logits: Value, y: Value, number: int, encoding: Encoding) -> None:
    """Two of a few experts, of which a workgroup takes several rows, or of many. The logits are exact, so that nobody else
    is chosen."""
    t, count = rec.trace, logits.shape[1]
    routing = mixture.route(t, logits, chosen=2, normalised=number > 1)
    rec.show(routing.weights)
    up = rec.weight(f"mixed{number}u", (count * _WIDTH, _WIDTH), encoding)
    inner = rec.show(mixture.expert_linear(t, y, routing, up))
    if number < _ENDS:
        inner = rec.show(mixture.clamped_glu(t, inner, inner, slope=1.702, limit=7.0))
        down = rec.weight(f"mixed{number}d", (count * _WIDTH, _WIDTH), encoding)
        shifts = rec.weight(f"shifts{number}", (count * _WIDTH,))
        rec.show(mixture.combine_experts(t, rec.show(mixture.expert_linear(t, inner, routing, down, shifts)), routing))


def _observed(program: Program, bucket: Bucket) -> Program:
    """With the masses of each layer, so that one that is wrong names its kernel."""
    watched = observe(program, bucket)
    return as_outputs(watched, (v for v in watched.values.values() if v.shape == (1, bucket.masses)))


def _attend(rec: Recorder, y: Value, step: dict[str, Value], halves: bool) -> Value:
    t, head = rec.trace, _WIDTH // _HEADS
    kinds = (_WIDTH, _KV_HEADS * head, _KV_HEADS * head)
    q, k, v = (ops.linear(t, y, rec.weight(f"qkv{i}", (rows, _WIDTH), _FORMATS[0])) for i, rows in enumerate(kinds))
    rec.show(ops.rope(t, y, step["positions"], heads=_HEADS, rotary=head // 2, base=1e4, magnitude=0.75))
    caches = [_cache(rec, name, head, halves) for name in ("", "2")]
    ops.kv_append(t, v, k, step, caches[1], heads=_KV_HEADS)
    q = ops.rope(t, q, step["positions"], heads=_HEADS, rotary=head, base=1e4, style="interleaved", magnitude=1.5)
    turned = ops.rope(
        t, k, step["positions"], heads=_KV_HEADS, rotary=head, base=1e4, style="interleaved", magnitude=1.5
    )
    ops.kv_append(t, turned, v, step, caches[0], heads=_KV_HEADS)
    shape: dict[str, Any] = {"heads": _HEADS, "kv_heads": _KV_HEADS, "scale": head**-0.5, "softcap": 4.0}
    rec.show(ops.attention(t, q, step, caches[1], **shape))
    return ops.attention(t, q, step, caches[0], **shape, window=_LAST - 20, sinks=rec.weight("sinks", (_HEADS,)))


def _cache(rec: Recorder, suffix: str, head: int, halves: bool) -> tuple[Value, Value, Value]:
    vector, dtype = (8, np.float16) if halves else (4, np.float32)
    pages = (2 + _LONG, _KV_HEADS)
    count = pages[0] * _KV_HEADS * head * _PAGE
    positions = np.maximum(np.arange(pages[0] * _PAGE, dtype=np.int64) - 2 * _PAGE, 0).astype(np.uint32)
    return (
        rec.state(f"keys{suffix}", wave(count, 1).reshape(*pages, head // vector, _PAGE, vector).astype(dtype)),
        rec.state(f"values{suffix}", wave(count, 2).reshape(*pages, _PAGE, head).astype(dtype)),
        rec.state(f"key_positions{suffix}", positions.reshape(pages[0], _PAGE)),
    )


@dataclass(frozen=True)
class Paper:
    """A part of a self-test, and where its answers are."""

    what: str
    """What is examined, for people."""
    exam: Examination
    answers: Path
    key: str
    """Of its answers in that file."""
    tolerance: float = TOLERANCE


def paper(halves: bool) -> Paper:
    """What all devices are examined with."""
    return Paper("kernels", examination(halves), ANSWERS, precision(halves))


Run = Callable[[Examination], Mapping[str, memoryview]]
"""Runs an examination on the device and gives its outputs."""


def check(title: str, device: str, driver: str, paper: Paper, run: Run) -> None:
    """Raises BackendUnavailable naming the first kernel whose result is wrong."""
    answers = stored(paper.answers)[paper.key]
    wrong = first_fault(paper.exam, run(paper.exam), answers, paper.tolerance)
    if wrong:
        raise BackendUnavailable(
            f"{device} with driver {driver} computes {title} {wrong}; update it, or use another --backend"
        )


def precision(halves: bool) -> str:
    return "f16" if halves else "f32"
