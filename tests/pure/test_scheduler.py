"""Which slices the next step has, and the arrays it is made of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from pie_edge.control.batch import bucket_for, build
from pie_edge.control.pages import Entry, WorkingSet, span_bits
from pie_edge.control.queue import Placement, Queues, Work
from pie_edge.control.scheduler import Budget, pick
from pie_edge.control.space import Space
from pie_edge.program.step import Bucket, StepLayout

PAGE = 8
BUDGET = Budget(rows=32, sequences=4, sampled=4, entries=40, shared_rows=16)
SPACE = Space("test", 7 << 32 | 5, 1, cast(Any, None), cast(Any, None))


def work(tokens: int, *, start: int = 0, rows: tuple[int, ...] | None = None, arrival: int = 0, first: int = 1) -> Work:
    end = start + tokens
    entries = [Entry(first + i, span_bits(i, 0, end, PAGE)) for i in range(-(-end // PAGE))]
    context, places = WorkingSet(entries), tuple(range(start, end))
    return Work(
        space=SPACE,
        queue=id(context),
        tokens=tuple(range(tokens)),
        rows=(tokens - 1,) if rows is None else rows,
        placement=Placement(tuple(entries), places, places),
        context=context,
        epilogue=None,
        parameters=(),
        future=cast(Any, None),
        arrival=arrival,
    )


def test_single_tokens_go_before_prompts_and_prompts_fill_the_rest() -> None:
    prompt, decode = work(100, arrival=0), work(1, start=20, arrival=1)
    first, second = pick([prompt, decode], BUDGET, PAGE)
    assert (first.work, first.count) == (decode, 1)
    assert (second.work, second.first, second.count, second.last) == (prompt, 0, 16, False)


def test_a_prompt_alone_gets_the_whole_step_and_ends_exactly() -> None:
    prompt = work(70)
    counts = []
    while prompt.remaining:
        (part,) = pick([prompt], BUDGET, PAGE)
        counts.append(part.count)
        prompt.done += part.count
    assert counts == [32, 32, 6]


def test_rows_of_one_epilogue_stay_in_one_step() -> None:
    verify = work(40, rows=tuple(range(36, 40)))
    decode = work(1, start=3)
    (lone,) = pick([verify], BUDGET, PAGE)
    assert lone.count == 32
    verify.done = 32
    tight = Budget(rows=6, sequences=4, sampled=8, entries=40, shared_rows=6)
    parts = pick([verify, decode, work(1, start=4)], tight, PAGE)
    # 8 rows remain, of which the last 4 belong together; 4 rows are left beside the two decodes.
    assert [(p.work.remaining, p.count) for p in parts] == [(1, 1), (1, 1), (8, 4)]


def test_every_limit_of_a_step_is_kept() -> None:
    many = [work(1, start=PAGE * i, arrival=i) for i in range(12)]
    parts = pick(many, Budget(rows=32, sequences=8, sampled=5, entries=100, shared_rows=32), PAGE)
    assert len(parts) == 5
    parts = pick(many, Budget(rows=32, sequences=8, sampled=32, entries=6, shared_rows=32), PAGE)
    assert sum(-(-p.end // PAGE) for p in parts) <= 6


works = st.builds(
    lambda tokens, start, arrival: work(tokens, start=start, arrival=arrival),
    st.integers(1, 90),
    st.integers(0, 40),
    st.integers(0, 5),
)


@given(st.lists(works, min_size=1, max_size=12))
def test_whatever_waits_the_oldest_advances_in_a_bounded_number_of_steps(waiting: list[Work]) -> None:
    total = sum(w.remaining for w in waiting)
    for _ in range(total):
        parts = pick(waiting, BUDGET, PAGE)
        assert parts
        assert sum(p.count for p in parts) <= BUDGET.rows
        assert len(parts) <= BUDGET.sequences
        assert sum(len(p.work.rows) for p in parts if p.last) <= BUDGET.sampled
        for part in parts:
            part.work.done += part.count
        waiting = [w for w in waiting if w.remaining]
        if not waiting:
            return
    raise AssertionError("work was left over")


def test_a_batch_has_every_field_of_its_slices() -> None:
    decode, prompt = work(1, start=9, first=1), work(3, first=5)
    step = build(pick([prompt, decode], BUDGET, PAGE), PAGE)
    inputs = step.inputs
    assert list(inputs.token_src) == [0, 0, 1, 2]
    assert list(inputs.positions) == list(inputs.row_index) == [9, 0, 1, 2]
    assert list(inputs.write_slots) == [2 * PAGE + 1, 5 * PAGE, 5 * PAGE + 1, 5 * PAGE + 2]
    assert list(inputs.query_starts) == [0, 1, 4]
    assert list(inputs.page_starts) == [0, 2, 3]
    assert list(inputs.pages) == [1, 2, 5]
    assert list(inputs.page_bits) == [0xFF, 0b11, 0b111]
    assert list(inputs.fresh_bits) == [0, 0b10, 0b111]
    assert list(inputs.sample_rows) == [0, 3]
    assert list(inputs.draw_keys) == [5, 7, 5, 7]
    assert [(r.first, r.count) for r in step.readouts] == [(0, 1), (1, 1)]
    StepLayout(inputs.counts).pack(inputs)


def test_a_slice_of_a_prompt_sees_only_what_is_written_before_its_end() -> None:
    prompt = work(100)
    prompt.done = 32
    step = build(pick([prompt], BUDGET, PAGE), PAGE)
    assert list(step.inputs.page_bits) == [0xFF] * 8
    assert list(step.inputs.fresh_bits) == [0] * 4 + [0xFF] * 4
    assert not step.readouts
    assert not step.inputs.sample_rows


@given(st.integers(0, 512), st.integers(1, 64), st.integers(0, 64), st.integers(0, 3000))
def test_a_bucket_holds_what_it_was_chosen_for(rows: int, sequences: int, sampled: int, entries: int) -> None:
    counts, limit = Bucket(rows, sequences, sampled, entries), Bucket(512, 64, 64, 3000)
    chosen = bucket_for(counts, limit)
    assert chosen.holds(counts)
    assert limit.holds(chosen)


@given(st.integers(1, 10_000), st.integers(1, 512), st.integers(1, 100_000))
def test_masks_and_observed_rows_of_any_number_meet_few_buckets(mask: int, observed: int, masses: int) -> None:
    chosen = bucket_for(Bucket(1, 1, 1, 1, mask, observed, masses), Bucket(512, 64, 64, 3000))
    powers = {8**i for i in range(1, 7)}
    for size, count in ((chosen.mask, mask), (chosen.observed, observed), (chosen.masses, masses)):
        assert size in powers
        assert count <= size < 8 * max(count, 8)


def test_calls_on_one_context_keep_their_order_and_others_overtake() -> None:
    queues = Queues()
    first, second, other = work(1, arrival=0), work(1, arrival=1), work(1, arrival=2)
    second.queue = first.queue
    for item in (first, second, other):
        queues.push(item)
    assert queues.heads() == [first, other]
    queues.finish(first)
    assert queues.heads() == [second, other]
    queues.finish(other)
    queues.finish(second)
    assert len(queues) == 0


def test_neither_a_prompt_nor_single_tokens_starve_however_many_they_are() -> None:
    prompt, decodes = work(40, arrival=100), [work(1, start=9, arrival=i) for i in range(9)]
    served: list[Work] = []
    for turn in range(3):
        parts = pick([*decodes, prompt], BUDGET, PAGE)
        assert [part.work for part in parts][-1] is prompt
        assert len(parts) == BUDGET.sequences
        served += [part.work for part in parts[:-1]]
        prompt.done += parts[-1].count
        # Whoever got a token asks for the next one behind those that wait.
        decodes = decodes[3:] + decodes[:3]
        assert prompt.done == min(16 * (turn + 1), 40)
    assert len(set(map(id, served))) == 9


def test_rows_of_one_epilogue_that_are_more_than_a_chunk_run_beside_single_tokens() -> None:
    verify, decode = work(30, rows=tuple(range(2, 30))), work(1, start=3)
    verify.done = 2
    parts = pick([decode, verify], Budget(rows=32, sequences=4, sampled=32, entries=40, shared_rows=16), PAGE)
    assert [(part.work, part.count) for part in parts] == [(decode, 1), (verify, 28)]


def test_prompts_are_kept_out_of_a_step_that_measures_single_tokens() -> None:
    alone = Budget(rows=32, sequences=4, sampled=4, entries=40, shared_rows=0)
    prompt, decode = work(100), work(1, start=20)
    assert [part.work for part in pick([prompt, decode], alone, PAGE)] == [decode]
    assert [part.count for part in pick([prompt], alone, PAGE)] == [32]


def test_a_prompt_s_next_rows_may_follow_before_the_last_have_landed() -> None:
    prompt = work(70)
    firsts = []
    while prompt.remaining:
        (part,) = pick([prompt], BUDGET, PAGE)
        prompt.launch(part.count)
        firsts.append(part.first)
    assert firsts == [0, 32, 64]
    assert prompt.flying == 3
    assert not prompt.runnable


def test_prompts_of_a_step_share_what_it_may_have_of_them() -> None:
    slow = replace(BUDGET, prompt_rows=8)
    assert [part.count for part in pick([work(20), work(20)], slow, PAGE)] == [8]
    assert [part.count for part in pick([work(6), work(20)], slow, PAGE)] == [6, 2]
    verify = work(12, rows=tuple(range(12)))
    alone = replace(slow, sampled=12)
    assert [part.count for part in pick([verify], alone, PAGE)] == [12], "rows of one epilogue belong together"
