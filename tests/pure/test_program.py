"""The recorded Program: tracing, its golden text, expansion, the arena, the step block."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pie_edge.errors import Unsupported
from pie_edge.model import llama
from pie_edge.model.llama import LlamaSpec
from pie_edge.model.rope import Rope
from pie_edge.model.spec import Cache
from pie_edge.program import reference, trace
from pie_edge.program.encodings import Affine, Dense, DType, Encoding, TwoLevel, planes
from pie_edge.program.expand import DECOMPOSITIONS, expand
from pie_edge.program.ops import KINDS, Op, Program, Role, Value
from pie_edge.program.plan import arena, lifetimes
from pie_edge.program.step import Bucket, StepInputs, StepLayout
from pie_edge.program.trace import Trace

GOLDEN = Path(__file__).parent.parent / "data" / "llama-tiny.program"

TINY = LlamaSpec(
    architecture="llama",
    container="gguf",
    vocabulary=32,
    context=64,
    hidden=8,
    layers=2,
    heads=2,
    kv_heads=1,
    head_dim=4,
    mlp=16,
    eps=1e-5,
    tied=True,
    rope=Rope(4, 10000.0, style="interleaved"),
)
CACHE = Cache(pages=4, page_size=8, dtype=DType.F32, logit_rows=4, token_slots=4)


def tiny_program(bucket: Bucket) -> Program:
    encodings: dict[str, Encoding] = {w.name: Dense(DType.F32) for w in llama.weights(TINY)}
    return llama.trace(TINY, bucket, CACHE, encodings)


def test_tiny_llama_traces_to_its_golden_text() -> None:
    assert str(tiny_program(Bucket(4, 2, 2, 8))) == GOLDEN.read_text(encoding="utf-8")


def test_a_program_hashes_by_what_it_says() -> None:
    one, same, other = (tiny_program(Bucket(rows, 2, 2, 8)) for rows in (4, 4, 8))
    assert one.digest == same.digest != other.digest


def test_a_fused_kind_expands_to_the_same_numbers() -> None:
    program = tiny_program(Bucket(3, 1, 3, 1))
    simple = expand(program, frozenset(KINDS) - frozenset(DECOMPOSITIONS))
    assert {op.kind for op in program.ops} & set(DECOMPOSITIONS)
    assert not {op.kind for op in simple.ops} & set(DECOMPOSITIONS)
    outcomes = []
    for version in (program, simple):
        rng = np.random.default_rng(1)
        arrays = {v.name: rng.normal(size=v.shape).astype("f4") for v in version.by_role(Role.WEIGHT)}
        arrays |= {v.name: np.zeros(v.shape, reference.NUMPY[v.dtype]) for v in version.by_role(Role.STATE)}
        index = [0, 1, 2]
        inputs = StepInputs([5, 6, 7], index, index, [8, 9, 10], [0, 3], [0, 1], [1], [7], [7], index, [0] * 6)
        reference.run(version, arrays, StepLayout(Bucket(3, 1, 3, 1)).pack(inputs).tobytes())
        outcomes.append(arrays["logits"].copy())
    np.testing.assert_array_equal(outcomes[0], outcomes[1])


def test_every_fused_kind_has_a_decomposition() -> None:
    assert {name for name, kind in KINDS.items() if kind.fused} == set(DECOMPOSITIONS)


def test_every_kind_has_a_meaning_in_the_reference() -> None:
    assert set(reference._MEANING) == set(KINDS)


def test_a_kind_without_a_simpler_form_is_refused_by_name() -> None:
    with pytest.raises(Unsupported, match="'linear'.*no simpler form"):
        expand(tiny_program(Bucket(1, 1, 1, 1)), frozenset(KINDS) - {"linear"})
    odd = Program("odd", {}, (Op("convolve", (), ()),))
    with pytest.raises(Unsupported, match="not in the op table"):
        expand(odd, frozenset(KINDS))


def test_a_trace_refuses_wrong_shapes_and_strangers() -> None:
    t = Trace("t")
    x = t.declare(Value("x", Role.INPUT, DType.F32, (2, 8)))
    w = t.weight("w", (4, 6), Dense(DType.F32))
    with pytest.raises(ValueError, match="should have 8 values there, has 6"):
        trace.linear(t, x, w)
    with pytest.raises(ValueError, match="doesn't know"):
        t.op("add", (x, Value("y", Role.TEMP, DType.F32, (2, 8))), (x,))
    with pytest.raises(ValueError, match="declared before"):
        t.weight("w", (4, 8), Dense(DType.F32))
    with pytest.raises(ValueError, match="takes attributes"):
        t.op("softcap", (x,), (x,))


def test_arena_never_overlaps_values_alive_together() -> None:
    program = tiny_program(Bucket(16, 2, 2, 8))
    plan, spans = arena(program, 64), lifetimes(program)
    for one, (first, last) in spans.items():
        for other, (first2, last2) in spans.items():
            if one < other and first <= last2 and first2 <= last:
                start, start2 = plan.offsets[one], plan.offsets[other]
                size, size2 = program.values[one].nbytes, program.values[other].nbytes
                assert start + size <= start2 or start2 + size2 <= start
    total = sum(program.values[name].nbytes for name in spans)
    assert plan.nbytes < total / 4


@st.composite
def steps(draw: st.DrawFn) -> StepInputs:
    lengths = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    entries = draw(st.lists(st.integers(1, 3), min_size=len(lengths), max_size=len(lengths)))
    rows, n = sum(lengths), sum(entries)
    word = st.integers(0, 2**32 - 1)

    def words(count: int) -> list[int]:
        return draw(st.lists(word, min_size=count, max_size=count))

    sampled = draw(st.integers(0, rows))
    return StepInputs(
        token_src=draw(st.lists(st.integers(-8, 100), min_size=rows, max_size=rows)),
        positions=words(rows),
        row_index=words(rows),
        write_slots=words(rows),
        query_starts=[sum(lengths[:i]) for i in range(len(lengths) + 1)],
        page_starts=[sum(entries[:i]) for i in range(len(entries) + 1)],
        pages=words(n),
        page_bits=words(n),
        fresh_bits=words(n),
        sample_rows=words(sampled),
        draw_keys=words(2 * sampled),
    )


@given(steps())
def test_a_step_survives_packing(inputs: StepInputs) -> None:
    bucket = Bucket(16, 4, 16, 16)
    t = Trace("t")
    t.step(StepLayout(bucket))
    found = reference.unpack(t.build(), StepLayout(bucket).pack(inputs).tobytes())
    for name in ("token_src", "positions", "row_index", "write_slots", "query_starts", "page_starts", "pages"):
        assert found[name].tolist() == list(getattr(inputs, name))
    assert found["draw_keys"].reshape(-1).tolist() == list(inputs.draw_keys)


def test_a_step_too_large_for_its_bucket_is_named() -> None:
    inputs = StepInputs([1, 2], [0, 1], [0, 1], [8, 9], [0, 2], [0, 1], [1], [3], [3], [1], [0, 0])
    with pytest.raises(ValueError, match="token_src holds 2 words.*room for 1"):
        StepLayout(Bucket(1, 1, 1, 1)).pack(inputs)


def test_planes_of_a_two_level_encoding() -> None:
    found = {p.name: p.shape for p in planes(Affine(4, 32, TwoLevel(), None), 2, 512)}
    assert found == {
        "codes": (2, 512),
        "scales": (2, 16),
        "minima": (2, 16),
        "super_scales": (2, 2),
        "super_minima": (2, 2),
    }
