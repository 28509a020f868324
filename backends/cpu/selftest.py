"""Every kernel once, on opening, against stored answers: a machine that computes wrong is refused by name.

One Program passes through all kernels, all weight formats and both forms of each product. All its temporaries are
outputs, so the first one that differs names the kernel. The answers come from the NumPy reference:
``python -m tests.support.selftest_answers`` writes them.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from pie_edge.backends.cpu.crew import Crew
from pie_edge.backends.cpu.executable import Arena, ModelExecutable, compile_program
from pie_edge.backends.cpu.memory import LinearMemory
from pie_edge.backends.cpu.weights import Loader, allocate
from pie_edge.backends.shared.host import processor
from pie_edge.backends.shared.selftest import Examination, Recorder, as_outputs, first_fault, stored, wave
from pie_edge.errors import BackendUnavailable
from pie_edge.program import trace as ops
from pie_edge.program import trace_experts as mixture
from pie_edge.program.encodings import Affine, Dense, DType, Encoding
from pie_edge.program.examine_recurrent import recurrent_ops, with_states
from pie_edge.program.observe import observe
from pie_edge.program.ops import Role, Value
from pie_edge.program.step import LAYER_WORDS, StepInputs, StepLayout

ANSWERS = Path(__file__).with_name("selftest.json")
TOLERANCE = 1e-3
"""Of the largest value compared. What goes wrong on a machine goes wrong by more."""

_WIDTH, _HEADS, _KV_HEADS, _PAGE, _PAGES, _VOCABULARY = 32, 4, 2, 8, 4, 11
_FORMATS: tuple[Encoding, ...] = (
    *(Dense(dtype) for dtype in (DType.F32, DType.F16, DType.BF16)),
    *(
        Affine(bits, group, scale, zero)
        for bits in (4, 8)
        for group in (16, 32)
        for scale in (DType.F16, DType.F32)
        for zero in (None, 1 << (bits - 1))
    ),
)
_TWO_TALKS = StepInputs(
    token_src=[3, -1, 7, 10, 0],
    positions=[0, 1, 2, 3, 9],
    row_index=[0, 1, 2, 3, 9],
    write_slots=[8, 9, 10, 11, 17],
    query_starts=[0, 4, 5],
    page_starts=[0, 1, 3],
    pages=[1, 3, 2],
    page_bits=[0b1111, 0xFF, 0b11],
    fresh_bits=[0b1111, 0, 0b10],
    sample_rows=[4, 1],
    draw_keys=[0] * 4,
    mass_rows=[3, 4],
    mass_starts=[0, 1, 3],
    adapters=[1, 0, 2, 2, 1],
    mass_layers=[1, *[0] * (LAYER_WORDS - 1)] * 2,
)
"""Four new rows of one sequence, and one row after others that are there: in NumPy's eyes and the kernels' two ways."""
_STEP = with_states(_TWO_TALKS)
_BUCKET = _STEP.counts


def examination() -> Examination:
    rec = Recorder()
    t = rec.trace
    layout = StepLayout(_BUCKET)
    step = t.step(layout)
    tokens = rec.state("tokens", np.array([5], np.uint32))
    x = ops.embed(t, rec.weight("embed", (_VOCABULARY, _WIDTH), _FORMATS[3]), step["token_src"], tokens, scale=2.0)
    y = ops.rms_norm(t, x, rec.weight("norm", (_WIDTH,)), eps=1e-5)
    attended = _attend(rec, y, step)
    residual, y = ops.add_rms_norm(t, attended, x, rec.weight("norm2", (_WIDTH,)), eps=1e-5, offset=1.0)
    for act in ("silu", "gelu_tanh", "gelu", "relu"):
        residual = ops.add(t, residual, ops.glu(t, y, attended, act=act))
    y = ops.layer_norm(t, residual, rec.weight("norm3", (_WIDTH,)), rec.weight("shift", (_WIDTH,)), eps=1e-5)
    y = ops.scale(t, ops.activation(t, y, act="gelu_tanh"), factor=3.0)
    down = rec.state("lora_a", wave(2 * 8 * _WIDTH, 5).reshape(2, 8, _WIDTH))
    up = rec.state("lora_b", wave(2 * _WIDTH * 8, 6).reshape(2, _WIDTH, 8))
    ops.adapter_linear(t, ops.adapter_linear(t, y, down, step["adapters"]), up, step["adapters"], y)
    sampled = ops.gather_rows(t, ops.softcap(t, residual, cap=3.0), step["sample_rows"])
    for number, encoding in enumerate(_FORMATS):
        # Nine rows: a strip, and one that is mostly empty.
        weight = rec.weight(f"w{number}", (9, _WIDTH), encoding)
        ops.linear(t, y, weight)
        ops.linear(t, sampled, weight, rec.weight("bias", (9,)))
    _mix(rec, ops.embed(t, rec.weight("router", (_VOCABULARY, 3)), step["token_src"], tokens), y)
    recurrent_ops(t, step, y, rec.weight, rec.made_state)
    ops.store(t, sampled, rec.state("kept", np.zeros((2, _WIDTH), np.float32)))
    program = observe(t.build(), _BUCKET)
    program = as_outputs(program, program.by_role(Role.TEMP))
    return Examination(program, rec.sources, rec.states, {"step": layout.pack(_STEP).tobytes()})


def _mix(rec: Recorder, logits: Value, y: Value) -> None:
    """Experts that many rows choose, and others that one or two do. The logits are exact, so that nobody else is chosen."""
    t, count = rec.trace, logits.shape[1]
    routing = mixture.route(t, logits, chosen=2, normalised=True)
    gate, up = (
        mixture.expert_linear(t, y, routing, rec.weight(f"mixed{i}", (count * _WIDTH, _WIDTH), _FORMATS[i]))
        for i in (0, 3)
    )
    inner, shift = mixture.clamped_glu(t, gate, up, slope=1.702, limit=7.0), rec.weight("shifts", (count * _WIDTH,))
    down = rec.weight("mixed", (count * _WIDTH, _WIDTH), _FORMATS[-1])
    mixture.combine_experts(t, mixture.expert_linear(t, inner, routing, down, shift), routing)


def _attend(rec: Recorder, y: Value, step: dict[str, Value]) -> Value:
    t, head = rec.trace, _WIDTH // _HEADS
    q = ops.rope(t, y, step["positions"], heads=_HEADS, rotary=head, base=1e4)
    keys = ops.linear(t, y, rec.weight("k", (_KV_HEADS * head, _WIDTH)))
    k = ops.rope(t, keys, step["positions"], heads=_KV_HEADS, rotary=head, base=1e4, style="interleaved", magnitude=1.5)
    pages = (_PAGES, _KV_HEADS)
    cache = (
        rec.state("keys", wave(_PAGES * _KV_HEADS * head * _PAGE, 1).reshape(*pages, head // 4, _PAGE, 4)),
        rec.state("values", wave(_PAGES * _KV_HEADS * head * _PAGE, 2).reshape(*pages, _PAGE, head)),
        rec.state("key_positions", np.zeros((_PAGES, _PAGE), np.uint32)),
    )
    ops.kv_append(t, k, keys, step, cache, heads=_KV_HEADS)
    shape: dict[str, Any] = {"heads": _HEADS, "kv_heads": _KV_HEADS, "scale": head**-0.5}
    sinks = rec.weight("sinks", (_HEADS,))
    return ops.attention(t, q, step, cache, **shape, window=10, softcap=4.0, sinks=sinks)


def check(memory: LinearMemory, crew: Crew, shared: Arena, loader: Loader) -> None:
    """Raises BackendUnavailable naming the first kernel whose result is wrong."""
    exam = examination()
    outputs = _run(exam, memory, crew, shared, loader)
    if wrong := first_fault(exam, outputs, stored(ANSWERS), TOLERANCE):
        raise BackendUnavailable(
            f"{processor()} with wasmtime {version('wasmtime')} computes cpu {wrong}; update wasmtime, or report this "
            "processor"
        )


def _run(exam: Examination, memory: LinearMemory, crew: Crew, shared: Arena, loader: Loader) -> dict[str, memoryview]:
    buffers: dict[str, Any] = {}
    for name, array in exam.states.items():
        region = buffers[name] = memory.allocate(array.nbytes, "the self-test")
        memory.view(region.offset, region.nbytes)[:] = array.tobytes()
    for value in exam.program.by_role(Role.WEIGHT):
        weight = buffers[value.name] = allocate(value, memory)
        loader.load(weight, exam.sources[value.name])
    executable = compile_program(exam.program, buffers, memory, shared, crew.threads)
    assert isinstance(executable, ModelExecutable)
    outputs = executable.run(memory, crew, exam.inputs)
    for buffer in (*buffers.values(), executable):
        memory.free(getattr(buffer, "region", buffer))
    return outputs
