"""What the engine says of itself agrees with what was asked of it."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from pie_edge.control.engine import Engine
from pie_edge.control.metrics import metrics
from pie_edge.control.statistics import WINDOW, Histogram, Trend
from tests.backend.test_engine import PROMPTS, engine_on, greedy, run
from tests.support.reference_backend import ReferenceBackend
from tests.support.tiny import PAGE

TOKENS = 6


async def answers(engine: Engine, prompts: list[list[int]], name: str = "a") -> None:
    spaces = [engine.open_space(f"{name}{number}", number) for number in range(len(prompts))]
    await asyncio.gather(*(greedy(space, prompt, TOKENS) for space, prompt in zip(spaces, prompts, strict=True)))
    for space in spaces:
        space.close()


def counted(histogram: dict[str, Any]) -> int:
    return sum(histogram["counts"])


def test_a_histogram_counts_what_is_at_most_each_bound() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 2.1, 100.0):
        histogram.add(value)
    assert histogram.snapshot() == {"bounds": [1.0, 2.0], "counts": [2, 2, 2], "sum": 107.1}


def test_a_trend_is_that_of_the_last_seconds() -> None:
    trend = Trend()
    assert trend.slope(0) == 0.0
    for second in range(100):
        trend.look(float(second), 5.0 * second if second < 50 else 250.0 - (second - 50))
    assert trend.slope(0) == -1.0
    assert len(trend._seen) <= WINDOW + 2


def test_figures_agree_with_what_was_asked_and_with_the_clock() -> None:
    async def body() -> None:
        began = time.perf_counter()
        async with engine_on(ReferenceBackend(), speculation_depth=0) as engine:
            await answers(engine, PROMPTS)
            found = json.loads(json.dumps(metrics([engine])))
            wall = time.perf_counter() - began
        counters, gauges, histograms = found["counters"], found["gauges"], found["histograms"]
        passes = len(PROMPTS) * TOKENS
        assert counters["passes"] == passes == counted(histograms["queue_seconds"])
        assert counters["step_tokens"] == counters["forwarded_tokens"] == histograms["step_rows"]["sum"]
        assert counters["forwarded_tokens"] + counters["prefix_hit_tokens"] == sum(
            len(prompt) + TOKENS - 1 for prompt in PROMPTS
        )
        for name in ("step_rows", "step_calls", "step_pages", "step_control_seconds", "step_device_seconds"):
            assert counted(histograms[name]) == counters["steps"] > 0, name
        assert counted(histograms["inferlet_first_result_seconds"]) == len(PROMPTS)
        assert counted(histograms["result_interval_seconds"]) == len(PROMPTS) * (TOKENS - 1)
        assert counted(histograms["prompt_cached_share"]) == sum(len(prompt) >= PAGE for prompt in PROMPTS)
        assert 0 < counters["device_busy_seconds"] <= wall
        assert counters["device_busy_seconds"] + counters["device_starved_seconds"] <= wall
        assert counters["control_seconds"] <= wall
        assert gauges["pages"] == gauges["pages_free"] + gauges["pages_cached"] + gauges["pages_used"]
        assert (gauges["pages_used"], gauges["calls"], gauges["calls_waiting"], gauges["spaces"]) == (0, 0, 0, 0)
        assert 0.0 <= gauges["device_idle_share"] <= 1.0

    run(body)


def test_prefix_hits_are_the_tokens_that_nobody_forwarded_again() -> None:
    async def body() -> None:
        async with engine_on(ReferenceBackend()) as engine:
            prompt = [*range(3 * PAGE), 7]
            await answers(engine, [prompt], "first")
            before = metrics([engine])["counters"]
            await answers(engine, [prompt], "second")
            found = metrics([engine])
        assert before["prefix_hit_tokens"] == 0
        assert found["counters"]["prefix_hit_tokens"] == 3 * PAGE
        shares = found["histograms"]["prompt_cached_share"]
        assert counted(shares) == 2 and shares["counts"][0] == 1

    run(body)


def test_passes_that_were_foreseen_are_hits_and_their_waits_are_counted_too() -> None:
    async def body() -> None:
        async with engine_on(ReferenceBackend(), speculation_depth=1) as engine:
            await answers(engine, [PROMPTS[0]])
            found = metrics([engine])
        assert found["counters"]["run_ahead_hits"] > 0
        assert counted(found["histograms"]["queue_seconds"]) == TOKENS

    run(body)
