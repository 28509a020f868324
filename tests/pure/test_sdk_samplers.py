"""Every sampler of the SDK, traced and run through the reference, against the same thing in plain Python."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

import pytest

from pie_edge.sampling import parse
from tests.support import sampling_oracle as oracle
from tests.support.epilogues import run
from tests.support.node_oracle import Pass, Plain
from tests.support.sdk_parts import with_vocabulary

from inferlet import Dry, Mirostat, Sampler, _chooser  # isort: skip
from inferlet._recipe import Recipe  # isort: skip
from inferlet.errors import InvalidHandle, UsageError  # isort: skip
from inferlet.eta import intrinsics  # isort: skip

VOCABULARY = 97
SEED, POSITION = (5, 11), 23
rng = random.Random(0)
ROW = [rng.gauss(0, 2.5) for _ in range(VOCABULARY)]
TIED = [float(token % 5) for token in range(VOCABULARY)]
MADE = [7, 3, 9, 7, 3, 9, 7, 50, 7, 3]


@pytest.fixture(autouse=True)
def vocabulary() -> Iterator[None]:
    with with_vocabulary(VOCABULARY):
        yield


def computed(traced: Any, row: list[float]) -> Any:
    epilogue = parse(traced.wire, vocabulary=VOCABULARY, rows=1)
    parameters = [Plain(t.shape, values) for t, (_, values) in zip(epilogue.parameters, traced.parameters, strict=True)]
    (outputs,) = run(epilogue, [Pass([row], [POSITION], [SEED], parameters)])
    return traced.pack([plain.flat if plain.shape else plain.flat[0] for plain in outputs])


def after(sampler: Sampler, made: list[int] = MADE) -> _chooser.Chooser:
    """A chooser that has made these tokens."""
    chooser = _chooser.Chooser(sampler)
    for token in made:
        chooser.take({"token": token, "drawn": -1.0})
    return chooser


def narrowed_row(sampler: Sampler, row: list[float]) -> list[float]:
    """The logits that the token is drawn from, after all stages."""
    chooser = after(sampler)
    form = chooser._form(len(chooser.values()["seen"]))

    def build(slots: Any) -> Any:
        return _chooser.narrowed(form, slots, _chooser.biased(form, slots, intrinsics.logits()))

    found: list[float] = computed(Recipe(build).with_values(chooser.values()), row)
    return found


DRY = Dry(multiplier=0.9, base=1.6, allowed=2, breakers=())
STAGES: dict[str, tuple[dict[str, Any], Any]] = {
    "temperature": ({"temperature": 0.7}, lambda row: row),
    "bias": ({"logit_bias": {3: 4.0, 96: -7.5}}, lambda row: oracle.biased(row, {3: 4.0, 96: -7.5})),
    "repetition": ({"repetition": 1.7}, lambda row: oracle.penalised(row, MADE, repetition=1.7)),
    "presence": ({"presence": 0.6}, lambda row: oracle.penalised(row, MADE, presence=0.6)),
    "frequency": ({"frequency": 0.3}, lambda row: oracle.penalised(row, MADE, frequency=0.3)),
    "DRY": (
        {"dry": DRY},
        lambda row: oracle.penalised(row, MADE, dry=oracle.dry_penalties(MADE, 0.9, 1.6, 2, set())),
    ),
    "all penalties and bias": (
        {"repetition": 1.3, "presence": -0.5, "frequency": 0.2, "dry": DRY, "logit_bias": {7: 2.0, 8: 1.0}},
        lambda row: oracle.penalised(
            oracle.biased(row, {7: 2.0, 8: 1.0}), MADE, 1.3, -0.5, 0.2, oracle.dry_penalties(MADE, 0.9, 1.6, 2, set())
        ),
    ),
    "top-k": ({"top_k": 5}, lambda row: oracle.top_k(row, 5)),
    "top-p": ({"top_p": 0.8}, lambda row: oracle.top_p(row, 0.8)),
    "min-p": ({"min_p": 0.07}, lambda row: oracle.min_p(row, 0.07)),
    "typical": ({"typical": 0.6}, lambda row: oracle.typical(row, 0.6)),
    "typical that keeps one token": ({"typical": 1e-6}, lambda row: oracle.typical(row, 1e-6)),
    "all cuts": (
        {"top_k": 30, "top_p": 0.95, "min_p": 0.01, "typical": 0.9},
        lambda row: oracle.typical(oracle.min_p(oracle.top_p(oracle.top_k(row, 30), 0.95), 0.01), 0.9),
    ),
    "a temperature before a cut": ({"temperature": 2.5, "top_p": 0.5}, None),
}


@pytest.mark.parametrize("name", STAGES)
def test_a_sampler_s_logits_are_those_computed_by_hand(name: str) -> None:
    settings, stage = STAGES[name]
    temperature = settings.get("temperature", 1.0)
    heated = [x / temperature for x in (stage(ROW) if stage and name != "temperature" else ROW)]
    expected = oracle.top_p(heated, 0.5) if stage is None else heated
    assert narrowed_row(Sampler(**settings), ROW) == pytest.approx(expected, rel=2e-5, abs=2e-5)


@pytest.mark.parametrize("name", [name for name in STAGES if name not in ("typical that keeps one token",)])
def test_the_token_is_drawn_from_those_logits(name: str) -> None:
    sampler = Sampler(**STAGES[name][0])
    token = computed(after(sampler).epilogue(), ROW)
    assert token == oracle.drawn(narrowed_row(sampler, ROW), SEED, POSITION)


def test_temperature_0_takes_the_likeliest_after_bias_and_penalties() -> None:
    first, second = oracle.likeliest_first(ROW)[:2]
    assert computed(_chooser.Chooser(Sampler(temperature=0)).epilogue(), ROW) == first
    assert computed(_chooser.Chooser(Sampler(temperature=0, logit_bias={first: -99.0})).epilogue(), ROW) == second
    assert computed(after(Sampler(temperature=0, presence=99.0), [first]).epilogue(), ROW) == second


def test_penalties_don_t_touch_what_was_not_made() -> None:
    found = narrowed_row(Sampler(repetition=3.0, frequency=1.0), ROW)
    untouched = [token for token in range(VOCABULARY) if token not in MADE]
    assert [found[token] for token in untouched] == pytest.approx([ROW[token] for token in untouched], rel=1e-6)


def test_mirostat_draws_below_its_bound_and_moves_it_by_what_it_missed() -> None:
    sampler = Sampler(temperature=1.3, mirostat=Mirostat(target=2.0, rate=0.5))
    chooser = _chooser.Chooser(sampler)
    bound, heated = 4.0, [x / 1.3 for x in ROW]
    for _ in range(6):
        found = computed(chooser.epilogue(), ROW)
        assert found["token"] == oracle.drawn(oracle.mirostat(heated, bound), SEED, POSITION)
        logprob = oracle.log_softmax(heated)[found["token"]]
        assert found["drawn"] == pytest.approx(logprob, rel=1e-5)
        chooser.take(found)
        bound -= 0.5 * (-logprob / math.log(2) - 2.0)
        assert chooser.values()["least"] == pytest.approx(-bound * math.log(2), rel=1e-5)


def test_mirostat_keeps_the_likeliest_token_when_its_bound_is_below_everything() -> None:
    chooser = _chooser.Chooser(Sampler(mirostat=Mirostat(target=1e-3)))
    assert computed(chooser.epilogue(), TIED)["token"] in range(VOCABULARY)
    assert computed(chooser.epilogue(), ROW)["token"] == oracle.likeliest_first(ROW)[0]


@pytest.mark.parametrize("count", [0, 1, 5])
def test_log_probabilities_are_the_model_s_own_whatever_the_sampler_does(count: int) -> None:
    sampler = Sampler(temperature=3.0, top_k=4, logit_bias={5: 9.0})
    chooser = _chooser.Chooser(sampler, logprobs=count)
    choice = chooser.take(computed(chooser.epilogue(), ROW))
    expected = oracle.log_softmax(ROW)
    assert choice.logprob == pytest.approx(expected[choice.token], rel=1e-5)
    best = oracle.likeliest_first(ROW)[:count]
    assert [token for token, _ in choice.alternatives] == best
    assert [logprob for _, logprob in choice.alternatives] == pytest.approx([expected[t] for t in best], rel=1e-5)


PRESETS = {
    "argmax": {"temperature": 0},
    "sample(temperature)": {"temperature": 0.7},
    "sample(temperature, top_k, top_p, min_p)": {"temperature": 0.7, "top_k": 5, "top_p": 0.9, "min_p": 0.1},
}


@pytest.mark.parametrize("preset", PRESETS)
def test_plain_samplers_are_presets_that_a_backend_has_a_kernel_for(preset: str) -> None:
    traced = _chooser.Chooser(Sampler(**PRESETS[preset])).epilogue()
    epilogue = parse(traced.wire, vocabulary=VOCABULARY, rows=1)
    assert str(epilogue.preset) == preset
    assert epilogue.chooses_token


def test_every_step_is_the_same_epilogue_and_other_settings_are_too() -> None:
    penalised = Sampler(repetition=1.2, frequency=0.1, dry=Dry(breakers=()), logit_bias={4: 1.0})
    chooser = _chooser.Chooser(penalised)
    wires = set()
    for token in range(8):
        wires.add(chooser.epilogue().wire)
        chooser.take(token)
    assert len(wires) == 1
    other = Sampler(temperature=0.4, repetition=2, presence=1, logit_bias={4: 1.0, 5: 2.0}, dry=Dry(0.1))
    assert _chooser.Chooser(other).epilogue().wire in wires


def test_the_table_of_tokens_that_were_made_grows_in_few_steps() -> None:
    chooser = _chooser.Chooser(Sampler(presence=1.0))
    lengths = []
    for token in range(VOCABULARY):
        lengths.append(len(chooser.values()["seen"]))
        chooser.take(token)
    assert sorted(set(lengths)) == [8, 64, 256]
    assert narrowed_row(Sampler(presence=1.0), ROW) == pytest.approx(oracle.penalised(ROW, MADE, presence=1.0))


BAD = {
    "a negative temperature": ({"temperature": -1}, "temperature is -1"),
    "a temperature that is no number": ({"temperature": math.nan}, "temperature is nan"),
    "a negative top-k": ({"top_k": -1}, "top_k is -1"),
    "a top-p of nothing": ({"top_p": 0}, "top_p is 0"),
    "a min-p above 1": ({"min_p": 1.5}, "min_p is 1.5"),
    "a typical share of nothing": ({"typical": 0}, "typical is 0"),
    "a divisor of 0": ({"repetition": 0}, "repetition is 0"),
    "an infinite penalty": ({"presence": math.inf}, "presence is inf"),
    "mirostat with a cut": ({"mirostat": Mirostat(), "top_k": 3}, "leave top_k out"),
    "greedy mirostat": ({"mirostat": Mirostat(), "temperature": 0}, "leave temperature 0 out"),
    "an infinite bias": ({"logit_bias": {1: -math.inf}}, "the bias of token 1"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_setting_that_means_nothing_is_refused(case: str) -> None:
    settings, said = BAD[case]
    with pytest.raises(UsageError, match=said):
        Sampler(**settings)


def test_a_bias_for_a_token_that_isn_t_there_is_refused() -> None:
    with pytest.raises(InvalidHandle, match="names token 97; this model's ids are 0 to 96"):
        Sampler(logit_bias={97: 1.0})


@pytest.mark.parametrize("make", [lambda: Mirostat(target=0), lambda: Mirostat(rate=2), lambda: Dry(base=0.5)])
def test_a_part_of_a_sampler_that_means_nothing_is_refused(make: Any) -> None:
    with pytest.raises(UsageError):
        make()


def test_more_alternatives_than_there_can_be_are_refused() -> None:
    with pytest.raises(UsageError, match="logprobs is 65"):
        _chooser.Chooser(Sampler(), logprobs=65)
