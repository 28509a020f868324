"""Which variant tuning takes, whatever the device: measurements are played."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest

from pie_edge.backend import Stop
from pie_edge.backends.shared import tune
from pie_edge.backends.shared.remembered import Subject
from pie_edge.backends.shared.shader_search import search
from pie_edge.backends.shared.trial import Bench, Chain
from pie_edge.backends.shared.tuning import LinearVariant, Tuning, software
from tests.backend.opening_on_device import Played

DEFAULT = software(8, ((1, LinearVariant(1, 16)), (4, LinearVariant(1, 12))), subgroups=True, texels=False)
FAST = replace(DEFAULT, linear=((1, LinearVariant(1, 8)), *DEFAULT.linear[1:]))


def nothing(*arguments: object) -> None:
    raise AssertionError("no device is asked")


class NoSession:
    stop = Stop()


BENCH = Bench(Subject("none", "a device", "1", ""), True, NoSession(), nothing, 1 << 27, DEFAULT, nothing, search)


@pytest.mark.parametrize("gain", [0.0, 0.2])
def test_tuning_takes_what_is_clearly_faster_and_nothing_else_however_much_measuring_wavers(
    monkeypatch: pytest.MonkeyPatch, gain: float
) -> None:
    """Each measurement wavers by 3 %, and an eighth of them take ten times as long. One variant of the product for a token is
    faster by ``gain``, the others are all the same."""
    for seed in range(20):
        chance = random.Random(seed)

        def played(self: object, chain: Chain, tuning: Tuning, chance: random.Random = chance) -> Played:
            true = 1.0 - gain * (tuning.linear[0] == FAST.linear[0])
            return Played(lambda: true * chance.gauss(1.0, 0.03) * (10 if chance.random() < 0.125 else 1))

        monkeypatch.setattr(tune.Tuner, "_trial", played)
        told: list[tune.Choice] = []
        assert tune.tune(BENCH, report=told.append) == (FAST if gain else DEFAULT)
        assert told[0].kernel == "linear, 1 tokens"
        assert ("the default stays" in str(told[0])) == (not gain)
        if gain:
            again, decision = str(told[0]).split("; ")[1:]
            assert re.fullmatch(r"again, default \d+ µs, groups 8 \d+ µs", again)
            assert decision == "groups 8 is taken"


def test_a_tuning_without_time_stays_with_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune.Tuner, "_trial", lambda self, chain, tuning: Played(lambda: 1e-3))
    told: list[tune.Choice] = []
    assert tune.tune(BENCH, seconds=0.0, report=told.append) == DEFAULT
    assert {str(choice).partition("; ")[2] for choice in told} == {"too little time to tell, the default stays"}


@pytest.mark.parametrize("same", [True, False])
def test_compiling_is_not_counted_and_a_variant_that_computes_otherwise_is_not_taken_however_fast_it_is(
    monkeypatch: pytest.MonkeyPatch, same: bool
) -> None:
    now = 0.0

    class Clock:
        @staticmethod
        def perf_counter() -> float:
            return now

    class Compared(Played):
        def agrees(self, other: object) -> bool:
            return same

    def played(self: object, chain: Chain, tuning: Tuning) -> Played:
        nonlocal now
        now += 100.0  # to compile it

        def seconds() -> float:
            nonlocal now
            taken = 1e-6 if tuning.linear[0] == FAST.linear[0] else 1e-3
            now += taken
            return taken

        return Compared(seconds)

    monkeypatch.setattr(tune, "time", Clock)
    monkeypatch.setattr(tune.Tuner, "_trial", played)
    told: list[tune.Choice] = []
    assert tune.tune(BENCH, seconds=5.0, report=told.append) == (FAST if same else DEFAULT)
    assert all(choice.finished for choice in told)
    assert ("groups 8" in told[0].wrong) == (not same)
