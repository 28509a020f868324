"""Presets: what they compute, how they are recognised, and that draws follow the distribution and only the seed."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

from pie_edge.errors import EpilogueError
from pie_edge.program.node_reference import run_nodes
from pie_edge.sampling import Epilogue, PresetCall, parse, presets, recognise
from tests.support.epilogues import NUMPY, Wire, run
from tests.support.node_oracle import Pass, Plain, evaluate

LOGITS = [2.0, 1.0, 0.5, 0.0, -1.0, 1.9, -math.inf, 0.25]


def plain(call: PresetCall, epilogue: Epilogue) -> list[Plain]:
    return [
        Plain(shape, np.frombuffer(data, NUMPY[dtype]).tolist())
        for (dtype, shape), data in zip(epilogue.parameters, call.parameters, strict=True)
    ]


def frequencies(call: PresetCall, draws: int) -> list[float]:
    """How often each token comes, over as many seeds: one call with a pass for each."""
    epilogue = parse(call.wire, vocabulary=len(LOGITS), rows=1)
    arrays: dict[str, Any] = {
        "logits": np.asarray([LOGITS], np.float32),
        "counts": np.asarray([draws], np.uint32),
        "rows": np.zeros(draws, np.uint32),
        "positions": np.full(draws, 17, np.uint32),
        "draw_keys": np.stack([np.arange(draws), np.full(draws, 3)], axis=-1).astype(np.uint32),
    }
    for number, parameter in enumerate(plain(call, epilogue)):
        arrays[f"param{number}"] = np.full((draws,), parameter.flat[0], NUMPY[epilogue.parameters[number].dtype])
    found = Counter(run_nodes(epilogue.program(draws, 1), arrays)["out0"].tolist())
    return [found[token] / draws for token in range(len(LOGITS))]


def kept_softmax(temperature: float, kept: set[int]) -> list[float]:
    parts = [math.exp(value / temperature) if token in kept else 0 for token, value in enumerate(LOGITS)]
    return [part / sum(parts) for part in parts]


# Worked out by hand: in falling order the tokens are 0, 5, 1, 2, 7, 3, 4, and at temperature 1 their probabilities
# .322 .292 .119 .072 .056 .044 .016 … once normalised (0.349, 0.316, 0.128, …).
DISTRIBUTIONS = [
    ({}, {0, 1, 2, 3, 4, 5, 7}),
    ({"temperature": 0.4}, {0, 1, 2, 3, 4, 5, 7}),
    ({"temperature": 2.5}, {0, 1, 2, 3, 4, 5, 7}),
    ({"top_k": 3}, {0, 5, 1}),
    ({"top_p": 0.6}, {0, 5}),
    ({"top_p": 0.7}, {0, 5, 1}),
    ({"min_p": 0.3}, {0, 5, 1}),
    ({"temperature": 2.0, "top_k": 5, "top_p": 0.9, "min_p": 0.5}, {0, 5, 1}),
]


@pytest.mark.parametrize(("settings", "kept"), DISTRIBUTIONS, ids=str)
def test_frequencies_follow_softmax_over_the_kept_tokens(settings: dict[str, Any], kept: set[int]) -> None:
    draws = 6_000
    found = frequencies(presets.sample(**settings), draws)
    expected = kept_softmax(settings.get("temperature", 1.0), kept)
    # Chi-square over at most 6 degrees of freedom: 32 is passed with probability 2e-5.
    chi_square = sum(draws * (a - b) ** 2 / b for a, b in zip(found, expected, strict=True) if b)
    assert chi_square < 32
    assert all(a == 0 for a, b in zip(found, expected, strict=True) if b == 0)


def test_temperature_0_and_argmax_take_the_likeliest() -> None:
    assert presets.sample(temperature=0) == presets.argmax()
    assert frequencies(presets.argmax(), 10)[0] == 1


@pytest.mark.parametrize(
    "settings", [{"temperature": 0.8, "top_k": 4, "top_p": 0.8, "min_p": 0.1}, {}, {"top_p": 0.95}], ids=str
)
def test_a_pass_draws_the_same_alone_and_anywhere_in_a_batch(settings: dict[str, Any]) -> None:
    call = presets.sample(**settings)
    epilogue = parse(call.wire, vocabulary=500, rows=1)
    noise = np.random.default_rng(5)
    passes = [
        Pass(
            [(noise.standard_normal(500) * 3).astype(np.float32).tolist()],
            [10 * n],
            [(n, n ^ 5)],
            plain(call, epilogue),
        )
        for n in range(9)
    ]
    alone = [run(epilogue, [given])[0] for given in passes]
    assert run(epilogue, passes) == alone
    assert run(epilogue, passes[::-1], spare=7) == alone[::-1]
    assert [evaluate(epilogue.graph, given) for given in passes] == alone


def test_a_draw_depends_on_seed_position_and_draw_index() -> None:
    wire = Wire()
    logits = wire.add("logits")
    epilogue = parse(wire.text(wire.add("gumbel_max", logits), wire.add("gumbel_max", logits)), vocabulary=4096, rows=1)
    flat = [0.0] * 4096
    passes = [Pass([flat], [position], [seed], []) for position in (1, 2) for seed in ((1, 0), (0, 1), (1, 1))]
    drawn = [plain_output.flat[0] for outputs in run(epilogue, passes) for plain_output in outputs]
    assert len(set(drawn)) == len(drawn) == 12
    assert run(epilogue, passes) == run(epilogue, passes)


def test_a_row_of_a_longer_pass_draws_as_it_would_alone() -> None:
    wire = Wire()
    text = wire.text(wire.add("gumbel_max", wire.add("logits")))
    noise = np.random.default_rng(8)
    rows = (noise.standard_normal((3, 90)) * 2).astype(np.float32).tolist()
    ((together,),) = run(parse(text, vocabulary=90, rows=3), [Pass(rows, [4, 5, 6], [(9, 9)] * 3, [])])
    alone = [Pass([row], [4 + number], [(9, 9)], []) for number, row in enumerate(rows)]
    assert together.flat == [outputs[0].flat[0] for outputs in run(parse(text, vocabulary=90, rows=1), alone)]


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"temperature": 0}, "argmax"),
        ({}, "sample(temperature)"),
        ({"top_k": 40}, "sample(temperature, top_k)"),
        ({"top_p": 0.9, "min_p": 0.1}, "sample(temperature, top_p, min_p)"),
        ({"top_k": 40, "top_p": 0.9, "min_p": 0.1}, "sample(temperature, top_k, top_p, min_p)"),
    ],
)
def test_a_preset_is_recognised(settings: dict[str, Any], name: str) -> None:
    epilogue = parse(presets.sample(**settings).wire, vocabulary=32, rows=1)
    assert epilogue.preset == name
    found = recognise(epilogue.program(8))
    assert found is not None
    assert [stage.argument for stage in found.stages] == [f"param{i}" for i in range(len(epilogue.parameters))]


def test_a_preset_written_by_hand_with_constants_and_a_mask_is_recognised() -> None:
    wire = Wire()
    x = wire.add("mask_logits", wire.add("logits"), wire.parameter("u32", [1]))
    x = wire.add("div", x, wire.add("constant", value=0.5))
    x = wire.add(
        "select",
        wire.add("ge", x, wire.add("nucleus", x, wire.add("constant", value=0.75))),
        x,
        wire.add("constant", value="-inf"),
    )
    found = recognise(parse(wire.text(wire.add("gumbel_max", x)), vocabulary=32, rows=1).program(1))
    assert str(found) == "sample(mask, temperature, top_p)"
    assert found is not None
    assert [stage.argument for stage in found.stages] == ["param0", 0.5, 0.75]


def changed(call: PresetCall, old: str, new: str) -> str:
    assert old in call.wire
    return call.wire.replace(old, new)


@pytest.mark.parametrize(
    "wire",
    [
        changed(presets.argmax(), "reduce_argmax", "reduce_argmin"),
        changed(presets.argmax(), '"keepdims":false', '"keepdims":true'),
        changed(presets.sample(top_k=3), '"-inf"', "-1.0"),
        changed(presets.sample(top_k=3), '"ge"', '"gt"'),
        changed(presets.sample(), '"div"', '"mul"'),
        json.dumps(json.loads(presets.sample().wire) | {"outputs": [3, 3], "result": "tuple"}),
    ],
)
def test_what_is_almost_a_preset_is_none(wire: str) -> None:
    assert parse(wire, vocabulary=32, rows=1).preset is None


def test_several_rows_are_no_preset() -> None:
    assert parse(presets.argmax().wire, vocabulary=32, rows=2).preset is None


@pytest.mark.parametrize(
    "settings",
    [{"temperature": -1}, {"temperature": math.nan}, {"top_k": -1}, {"top_p": 0}, {"top_p": 1.5}, {"min_p": -0.1}],
    ids=str,
)
def test_settings_that_mean_nothing_are_refused_by_name(settings: dict[str, Any]) -> None:
    (name,) = settings
    with pytest.raises(EpilogueError, match=f"{name} is"):
        presets.sample(**settings)
