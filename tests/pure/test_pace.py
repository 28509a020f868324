"""What the pace of past steps says of the next one: when it is closed, and how much of a prompt it may carry."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from pie_edge.control.pace import FIRST_CHUNK, LONGEST_MARGIN, LONGEST_STEP, MARGIN, PATIENCE, SMALLEST_CHUNK, Pace
from pie_edge.control.queue import Work
from pie_edge.control.scheduler import Budget
from pie_edge.control.space import Space
from tests.pure.test_scheduler import work

LIMITS = Budget(rows=512, sequences=64, sampled=64, entries=1000, shared_rows=128)
STEP, ROW, SINGLE = 0.008, 0.00005, 0.0002


def spaces(count: int) -> list[Space]:
    return [Space(f"s{i}", 0, i, cast(Any, None), cast(Any, None)) for i in range(count)]


def waiting(prompts: int, singles: int) -> list[Work]:
    return [work(100) for _ in range(prompts)] + [work(1, start=9) for _ in range(singles)]


def run(pace: Pace, rows: int, singles: list[Space], now: float) -> float:
    """A step of the line above; when it ends."""
    pace.launched(rows + len(singles), singles, now)
    end = now + STEP + ROW * rows + SINGLE * len(singles)
    pace.landed(end)
    return end


def test_a_step_is_formed_at_once_when_nothing_runs_and_shortly_before_the_end_of_what_does() -> None:
    pace, alive = Pace(), set(spaces(2))
    assert pace.hold(waiting(0, 1), 1, alive, 0.0) == 0
    end = run(pace, 0, spaces(1), 0.0)
    pace.launched(1, spaces(1), end)
    took = STEP + SINGLE
    assert 0 < pace.hold(waiting(0, 1), 1, alive, end) < took
    assert pace.hold(waiting(0, 1), 1, alive, end + took) == 0
    assert pace.hold(waiting(0, 2), 2, alive, end) == 0


def test_a_step_is_closed_earlier_when_the_device_had_to_wait_for_one_and_again_later_when_it_does_not() -> None:
    pace, alive, now = Pace(), spaces(2), 0.0
    waits = []
    for missed in [False, True, True, True, True, *[False] * 200]:
        pace.launched(1, alive[:1], now)
        waits.append(pace.hold(waiting(0, 1), 1, set(alive), now))
        if not missed:
            pace.launched(1, alive[:1], now)
        now += STEP
        pace.landed(now)
        if not missed:
            now += STEP
            pace.landed(now)
    assert waits[1] == pytest.approx(STEP - MARGIN)
    assert waits[2] == pytest.approx(STEP - 2 * MARGIN)
    assert waits[5] == pytest.approx(STEP * (1 - LONGEST_MARGIN))
    assert waits[-1] == pytest.approx(STEP - MARGIN)


def test_prompts_wait_a_moment_for_those_who_decode_and_no_longer() -> None:
    pace, alive = Pace(), spaces(3)
    end = run(pace, 0, alive, 0.0)
    took = STEP + 3 * SINGLE
    assert 0 < pace.hold(waiting(1, 0), 1, set(alive), end) <= PATIENCE * took
    assert pace.hold(waiting(1, 0), 1, set(alive), end + PATIENCE * took) == 0
    assert pace.hold(waiting(1, 1), 4, set(alive), end) == 0


def test_prompts_don_t_wait_for_inferlets_that_have_ended_or_for_their_own() -> None:
    pace, ended = Pace(), spaces(3)
    end = run(pace, 0, ended, 0.0)
    prompt = work(100)
    assert pace.hold([prompt], 1, {prompt.space}, end) == 0
    assert not pace.budget(LIMITS, [prompt], {prompt.space}).decoding
    end = run(pace, 0, [prompt.space], end)
    assert not pace.budget(LIMITS, [prompt], {prompt.space}).decoding
    assert pace.budget(LIMITS, [prompt], set(ended)).decoding


def test_single_tokens_have_a_step_to_themselves_once_for_each_magnitude() -> None:
    pace, alive, now = Pace(), spaces(16), 0.0
    seen = []
    for count in (1, 1, 2, 3, 4, 9, 12, 5):
        shared = pace.budget(LIMITS, waiting(1, count), set(alive)).shared_rows
        seen.append(shared == 0)
        now = run(pace, 0 if shared == 0 else 64, alive[:count], now)
    assert seen == [True, False, True, False, True, True, False, False]


def test_the_chunk_is_as_long_as_it_costs_the_prompt_a_small_share() -> None:
    pace, alive = Pace(), spaces(8)
    now = run(pace, 0, alive[:1], 0.0)
    now = run(pace, 0, alive, now)
    run(pace, 128, alive, now)
    chunk = pace.budget(LIMITS, waiting(1, 8), set(alive)).shared_rows
    alone = STEP / LIMITS.rows + ROW
    beside = (STEP + 8 * SINGLE) / chunk + ROW
    assert 1.0 < beside / alone < 1.1
    assert SMALLEST_CHUNK < chunk < LIMITS.rows


def test_where_rows_are_dear_chunks_are_short() -> None:
    pace, alive = Pace(), spaces(1)
    pace.launched(1, alive, 0.0)
    pace.landed(0.01)
    pace.launched(129, alive, 0.01)
    pace.landed(1.01)
    assert pace.budget(LIMITS, waiting(1, 1), set(alive)).shared_rows == SMALLEST_CHUNK


def test_before_anything_is_known_the_limits_hold() -> None:
    pace, alive = Pace(), spaces(2)
    assert pace.budget(LIMITS, waiting(0, 2), set(alive)) == LIMITS
    assert pace.budget(LIMITS, waiting(2, 0), set(alive)) == replace(LIMITS, prompt_rows=FIRST_CHUNK)
    run(pace, 0, alive[:1], 0.0)
    assert pace.budget(LIMITS, waiting(1, 1), set(alive)).shared_rows == LIMITS.shared_rows


def test_a_prompt_makes_no_step_longer_than_the_pages_of_one_that_ends_may_be_waited_for() -> None:
    pace, now, rows = Pace(), 0.0, 0
    for _ in range(4):
        rows = pace.budget(LIMITS, waiting(1, 0), set()).prompt_rows
        pace.launched(rows, (), now)
        pace.landed(now + rows / 500)
        now += rows / 500
    assert rows == 128, "a power of two"
    assert LONGEST_STEP / 2 < rows / 500 <= LONGEST_STEP
    for _ in range(9):
        pace.launched(rows, (), now)
        pace.landed(now + rows / 10_000)
        now += rows / 10_000
    assert pace.budget(LIMITS, waiting(1, 0), set()).prompt_rows >= LIMITS.rows, "a quick device doesn't notice"
