"""Epilogues over whole vocabularies on any device: awkward rows, presets, many passes. Who takes these tests has a
``session``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pie_edge.program.node_reference import run_nodes
from pie_edge.program.node_reference_random import gumbel_at, streams
from pie_edge.sampling import Epilogue, parse, presets
from tests.support.epilogue_device import Session
from tests.support.epilogues import NUMPY, Wire
from tests.support.wide_epilogues import TEXTS, arrays_of, narrowed, nucleus_is_right


def agree(found: dict[str, Any], expected: dict[str, Any]) -> None:
    for name, want in expected.items():
        if want.dtype == np.float32:
            scale = max(1.0, float(np.abs(want[np.isfinite(want)]).max(initial=0)))
            np.testing.assert_allclose(found[name], want, rtol=5e-6, atol=5e-7 * scale, err_msg=name)
        else:
            np.testing.assert_array_equal(found[name], want, err_msg=name)


def parameters(epilogue: Epilogue, call: presets.PresetCall, passes: int) -> dict[str, Any]:
    types = (NUMPY[dtype] for dtype, _ in epilogue.parameters)
    return {
        f"param{number}": np.frombuffer(data * passes, kind)
        for number, (data, kind) in enumerate(zip(call.parameters, types, strict=True))
    }


def check_rows(session: Session, name: str, kind: str, vocabulary: int, passes: int) -> None:
    """What one of ``TEXTS`` gives is what the reference gives."""
    program, arrays = arrays_of(parse(TEXTS[name], vocabulary=vocabulary, rows=1), kind, passes)
    agree(session.run(program, arrays), run_nodes(program, arrays))


@pytest.mark.parametrize("vocabulary", [1, 31, 257, 4095, 151936])
def test_a_row_of_any_length_is_sampled(session: Session, vocabulary: int) -> None:
    call = presets.sample(0.8, top_k=20, min_p=0.01)
    epilogue = parse(call.wire, vocabulary=vocabulary, rows=1)
    program, arrays = arrays_of(epilogue, "noise", 3, parameters(epilogue, call, 3))
    agree(session.run(program, arrays), run_nodes(program, arrays))


@pytest.mark.parametrize("kind", ["noise", "ties", "masked"])
@pytest.mark.parametrize("p", [0.0, 0.1, 0.9, 0.999999, 1.0])
@pytest.mark.parametrize("vocabulary", [100, 262144])
def test_a_nucleus_has_its_probability(session: Session, vocabulary: int, p: float, kind: str) -> None:
    wire = Wire()
    text = wire.text(wire.add("nucleus", wire.add("logits"), wire.add("constant", value=p)))
    program, arrays = arrays_of(parse(text, vocabulary=vocabulary, rows=1), kind, 2)
    found = session.run(program, arrays)["out0"]
    for row, threshold in zip(arrays["logits"][::-1], found, strict=True):
        if not np.isfinite(row.max()):
            assert threshold == row.max()
        elif p == 1.0:
            assert threshold == row.min()
        else:
            assert nucleus_is_right(row, p, threshold)


SETTINGS = [(40, 1.0, 0.0), (0, 0.9, 0.0), (0, 1.0, 0.05), (40, 0.9, 0.05), (5000, 0.99, 0.0), (0, 0.5, 0.2)]


@pytest.mark.parametrize("kind", ["noise", "ties", "masked"])
@pytest.mark.parametrize(("top_k", "top_p", "min_p"), SETTINGS)
def test_a_sampled_token_is_the_likeliest_with_its_noise(
    session: Session, kind: str, top_k: int, top_p: float, min_p: float
) -> None:
    call = presets.sample(0.7, top_k, top_p, min_p)
    epilogue = parse(call.wire, vocabulary=49152, rows=1)
    program, arrays = arrays_of(epilogue, kind, 5, parameters(epilogue, call, 5))
    tokens = session.run(program, arrays)["out0"]
    general = session.run(program, arrays, presets=False)["out0"]
    np.testing.assert_array_equal(tokens, general)
    checked = 0
    for number, token in enumerate(tokens):
        row, certain = narrowed(arrays["logits"][4 - number] / np.float32(0.7), top_k, top_p, min_p)
        stream = streams(arrays["draw_keys"][number : number + 1], arrays["positions"][number : number + 1], 0)
        noisy = row + gumbel_at(stream, np.arange(49152))
        if certain:
            assert noisy[token] >= noisy.max() - 1e-5
            checked += 1
    assert checked >= 3


def test_a_mask_and_constants_go_into_the_sampling_kernel(session: Session) -> None:
    for first in ("mask_logits", "div"):
        wire = Wire()
        x, words = wire.add("logits"), wire.parameter("u32", [(1000 + 31) // 32])
        steps = {"mask_logits": words, "div": wire.add("constant", value=0.5)}
        for op in (first, *(op for op in steps if op != first)):
            x = wire.add(op, x, steps[op])
        least = wire.add("kth_largest", x, wire.add("constant", value=3), keepdims=True)
        x = wire.add("select", wire.add("ge", x, least), x, wire.add("constant", value="-inf"))
        epilogue = parse(wire.text(wire.add("gumbel_max", x)), vocabulary=1000, rows=1)
        assert epilogue.preset == "sample(mask, temperature, top_k)" or first == "div"
        random = np.random.default_rng(1)
        mask = random.integers(0, 2**32, (9, 32), dtype=np.uint32)
        # The last pass's mask leaves nothing.
        mask[8] = 0
        program, arrays = arrays_of(epilogue, "noise", 9, {"param0": mask})
        agree(session.run(program, arrays), run_nodes(program, arrays))


@pytest.mark.parametrize("share", [-1.0, float("nan"), float("inf"), 0.0, 1e-40, 2.0])
def test_a_share_that_means_nothing_gives_what_the_reference_gives(session: Session, share: float) -> None:
    call = presets.sample(0.7, top_k=50, min_p=0.5)
    epilogue = parse(call.wire, vocabulary=999, rows=1)
    given = parameters(epilogue, call, 4) | {"param2": np.full(4, share, np.float32)}
    program, arrays = arrays_of(epilogue, "noise", 4, given)
    agree(session.run(program, arrays), run_nodes(program, arrays))
