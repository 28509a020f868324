"""The simulation that policies are compared in: it loses nothing, each policy does what its name says, and ours keeps its
promises on both cost models."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.device_costs import CPU, L4, Cost, Load, fit
from benchmarks.policies import DecodeFirst, Eager, FixedSize, FixedWait, PrefillFirst, WorkConserving
from benchmarks.policy import long_prompt, scripts, serve, throughput
from benchmarks.simulation import BUDGET, Policy, Script, Simulation
from tests.web.steps import STEPS, report

POLICIES: dict[str, Callable[[], Policy]] = {
    "ours": lambda: WorkConserving(ahead=True),
    "no run-ahead": WorkConserving,
    "eager": Eager,
    "fixed size": lambda: FixedSize(4),
    "fixed wait": lambda: FixedWait(0.005),
    "prefill first": PrefillFirst,
    "decode first": DecodeFirst,
}


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("host", [0.0, 3e-4])
def test_every_inferlet_ends_with_all_its_tokens_and_holds_nothing(name: str, host: float) -> None:
    sim = Simulation(POLICIES[name](), L4, host)
    asked = list(itertools.islice(scripts(7), 20))
    for script in asked:
        sim.start(script)
    sim.run()
    assert [len(run.times) for run in sim.runs] == [script.tokens for script in asked]
    assert all(run.times == sorted(run.times) for run in sim.runs)
    assert not sim.alive
    assert len(sim.queues) == 0
    assert sim.pool.free + sim.residency.index.reclaimable == sim.pool.total


def test_tokens_never_come_quicker_than_the_device_makes_them() -> None:
    sim = Simulation(WorkConserving(ahead=True), CPU)
    sim.start(Script(0.0, 64, 20))
    sim.run()
    (run,) = sim.runs
    assert run.first_token == pytest.approx(CPU.seconds(Load(64, 1, 64, 2080)))
    for index, gap in enumerate(run.gaps, 1):
        assert gap == pytest.approx(CPU.seconds(Load(1, 1, 64 + index, 64 + index)))


def test_the_simulation_forms_the_steps_that_the_engine_forms() -> None:
    """Eight callers in lockstep: one step for the prompts, then one for each token."""
    real: dict[str, Any] = asyncio.run(report())
    sim = Simulation(WorkConserving(ahead=True), L4)
    for number in range(8):
        sim.start(Script(0.0, 2 + number % 4, STEPS))
    sim.run()
    assert [load.rows for _, load in sim.steps] == [28] + [8] * (STEPS - 1)
    # Run-ahead foresees one pass more than the callers ask for, where they have room for it.
    assert len(sim.steps) == STEPS <= real["steps"] <= STEPS + 1


def test_eager_steps_have_one_call() -> None:
    sim = _busy(Eager())
    assert {load.sampled for _, load in sim.steps} <= {0, 1}


def test_steps_of_a_fixed_size_have_that_many_calls() -> None:
    sim = _busy(FixedSize(4))
    assert {load.sampled for _, load in sim.steps[8:-16]} == {4}


def test_a_fixed_wait_lets_calls_gather_for_its_time() -> None:
    sim = Simulation(FixedWait(0.05), L4)
    sim.start(Script(0.0, 10, 1))
    sim.start(Script(0.04, 10, 1))
    sim.start(Script(0.06, 10, 1))
    sim.run()
    assert [(round(began, 3), load.sampled) for began, load in sim.steps] == [(0.05, 2), (0.11, 1)]


def _busy(policy: Policy) -> Simulation:
    sim = Simulation(policy, L4)
    for _ in range(8):
        sim.start(Script(0.0, 20, 30))
    sim.run()
    return sim


@pytest.mark.parametrize("alive", [1, 8, 32])
def test_ours_makes_as_many_tokens_as_the_best_fixed_policy_at_every_size(alive: int) -> None:
    ours = throughput(WorkConserving(ahead=True), L4, alive)
    others = [FixedSize(8), FixedSize(32), FixedWait(0.005), FixedWait(0.02), Eager()]
    assert ours >= 0.99 * max(throughput(other, L4, alive) for other in others)


def test_batching_is_worth_more_than_ten_times_at_a_hundred_and_twenty_eight() -> None:
    assert throughput(WorkConserving(ahead=True), L4, 128, 1.0) > 10 * throughput(Eager(), L4, 128, 0.3)


@pytest.mark.parametrize("cost", [CPU, L4], ids=["cpu", "L4"])
@pytest.mark.parametrize("ahead", [True, False], ids=["run-ahead", "none"])
@pytest.mark.parametrize("decoding", [1, 8])
def test_a_long_prompt_costs_itself_little_and_others_at_most_a_chunk(cost: Cost, ahead: bool, decoding: int) -> None:
    seen = long_prompt(lambda: WorkConserving(ahead=ahead), cost, decoding)
    assert 0 < seen.cost <= 0.15
    assert 0 < seen.delay <= 1


@pytest.mark.parametrize(("cost", "slower"), [(CPU, 1.04), (L4, 1.0)], ids=["cpu", "L4"])
def test_a_long_prompt_alone_takes_as_long_as_in_the_largest_steps(cost: Cost, slower: float) -> None:
    """Or hardly longer, where those take so long that others' pages would wait for them."""
    seen = long_prompt(lambda: WorkConserving(ahead=True), cost, 0)
    starts = range(0, 4000, BUDGET.rows)
    ends = [min(start + BUDGET.rows, 4000) for start in starts]
    keys = [
        (end - start) * start + (end - start) * (end - start + 1) // 2 for start, end in zip(starts, ends, strict=True)
    ]
    loads = [Load(e - s, int(e == 4000), e, k) for s, e, k in zip(starts, ends, keys, strict=True)]
    largest = sum(map(cost.seconds, loads))
    assert largest * 0.9999 < seen.alone < largest * slower * 1.0001


def test_mixed_steps_keep_gaps_shorter_than_whole_prompts_do_and_prompts_from_starving() -> None:
    mixed, prefill, decode = (
        serve(make(ahead=True), L4, 0.5, 5.0) for make in (WorkConserving, PrefillFirst, DecodeFirst)
    )
    assert mixed.gap_p99 < prefill.gap_p99
    assert mixed.first_token < decode.first_token


def test_a_cost_is_found_again_in_what_it_says() -> None:
    known = Cost(5e-3, 1e-3, 2e-3, 3e-6, 1e-6)
    loads = [
        Load(*given)
        for given in [(1, 1, 20, 20), (1, 1, 900, 900), (8, 8, 90, 90), (64, 1, 64, 2080), (99, 1, 999, 9999)]
    ]
    found = fit([(load, known.seconds(load)) for load in [*loads, Load(30, 2, 30, 500)]])
    assert found.step == pytest.approx(known.step)
    assert found.row == pytest.approx(known.row)
    assert found.key == pytest.approx(known.key)
