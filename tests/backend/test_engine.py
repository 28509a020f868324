"""The engine over the NumPy reference and a tiny model: what comes back is what a lone whole pass would give."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from pie_edge.backend import Backend
from pie_edge.control.engine import Engine
from pie_edge.control.queue import ForwardCall
from pie_edge.control.space import Space
from pie_edge.errors import (
    ContextOverflow,
    DeviceLost,
    EpilogueError,
    InferletCancelled,
    InvalidHandle,
    NotFinite,
    OutOfMemory,
    OutOfPages,
)
from pie_edge.model import llama
from tests.support import tiny
from tests.support.oracle_run import Loaded, log_probabilities
from tests.support.readouts import read_out
from tests.support.reference_backend import ReferenceBackend
from tests.support.remembering_backend import RememberingBackend, answer
from tests.support.tiny import ARGMAX, PAGE, SPEC, open_tiny, random_weights

PROMPTS = [[3, 1, 4, 1, 5], [9, 2, 6], [5] * 45, [35], list(range(20))]


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 60))


@asynccontextmanager
async def engine_on(backend: Backend, **settings: Any) -> AsyncIterator[Engine]:
    engine = await open_tiny(backend, **settings)
    try:
        yield engine
    finally:
        await engine.close()


def nothing_held(engine: Engine) -> bool:
    return engine.pool.free + engine.prefixes.reclaimable == engine.pool.total


class DictSpill:
    """A disk."""

    def __init__(self) -> None:
        self.contents: dict[int, bytes] = {}
        self.written = 0

    def put(self, handle: int, content: bytes) -> None:
        self.contents[handle] = content
        self.written += 1

    def get(self, handle: int) -> bytes:
        return self.contents[handle]

    def drop(self, handle: int) -> None:
        del self.contents[handle]

    def close(self) -> None:
        self.contents.clear()


async def next_token(space: Space, context: int, tokens: list[int], start: int) -> int:
    call = ForwardCall(context, tuple(tokens), start, start + len(tokens), (len(tokens) - 1,), ARGMAX)
    (best,) = await space.submit(call)
    assert (best.dtype, best.shape) == ("u32", ())
    return int(best.data[0])


async def greedy(space: Space, prompt: list[int], count: int) -> list[int]:
    context = space.create_working_set(len(prompt) + count)
    pending, seen, answer = prompt, 0, []
    while len(answer) < count:
        token = await next_token(space, context, pending, seen)
        seen += len(pending)
        pending = [token]
        answer.append(token)
    return answer


def expected(prompt: list[int], count: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(count):
        row = log_probabilities(Loaded(SPEC, llama, random_weights()), tokens)[-1]
        tokens.append(int(row.argmax()))
    return tokens[len(prompt) :]


def test_generation_equals_whole_passes_alone_and_together() -> None:
    async def test() -> None:
        async with engine_on(ReferenceBackend()) as engine:
            alone = [await greedy(engine.open_space("a", 0), prompt, 6) for prompt in PROMPTS]
            together = await asyncio.gather(
                *(greedy(engine.open_space(f"s{i}", 0), p, 6) for i, p in enumerate(PROMPTS))
            )
            assert engine.statistics.largest_step > 1
        assert alone == together == [expected(prompt, 6) for prompt in PROMPTS]

    run(test)


def test_a_fork_continues_from_the_shared_tokens_and_neither_disturbs_the_other() -> None:
    async def test() -> None:
        async with engine_on(ReferenceBackend()) as engine:
            space = engine.open_space("fork", 0)
            context = space.create_working_set(64)
            prompt = [7, 8, 9, 10, 11]
            await next_token(space, context, prompt, 0)
            branch = space.fork(context)
            one = await next_token(space, context, [1, 2], 5)
            two = await next_token(space, branch, [3], 5)
            assert [one] == expected([*prompt, 1, 2], 1)
            assert [two] == expected([*prompt, 3], 1)
            assert [await next_token(space, context, [4], 7)] == expected([*prompt, 1, 2, 4], 1)
            assert any(name.startswith("copy-pages") for name in engine._device._backend.runs)  # type: ignore[attr-defined]
            space.close()
            assert nothing_held(engine)

    run(test)


def test_rewriting_tokens_replaces_them() -> None:
    async def test() -> None:
        async with engine_on(ReferenceBackend()) as engine:
            space = engine.open_space("rewind", 0)
            context = space.create_working_set(32)
            await next_token(space, context, [1, 2, 3, 4, 5], 0)
            assert [await next_token(space, context, [9, 8], 2)] == expected([1, 2, 9, 8], 1)

    run(test)


def test_several_rows_come_back_as_one_tensor() -> None:
    async def test() -> None:
        wire = ARGMAX.replace('"attrs": {}, "line": "test:1"}, {', '"attrs": {"rows": 3}, "line": "test:1"}, {', 1)
        async with engine_on(ReferenceBackend()) as engine:
            space = engine.open_space("rows", 0)
            context = space.create_working_set(64)
            tokens = tuple(range(40))
            (best,) = await space.submit(ForwardCall(context, tokens, 0, 40, (37, 38, 39), wire))
            rows = log_probabilities(Loaded(SPEC, llama, random_weights()), list(tokens))
            assert list(best.data) == rows[37:].argmax(axis=-1).tolist()
            assert best.shape == (3,)

    run(test)


def test_hidden_states_alone_need_no_logits() -> None:
    async def test() -> None:
        async with engine_on(ReferenceBackend()) as engine:
            logits: Any = engine._device._buffers["logits"]
            logits.data[:] = 7
            (state,) = await read_out(engine, [1, 2, 3], ["hidden", None], (2,))
            assert state.shape == (SPEC.hidden,)
            assert set(logits.data) == {7}
            await read_out(engine, [1, 2, 3], ["hidden", 1, "logits", 1], (2,))
            assert set(logits.data) != {7}

    run(test)


def test_a_pass_without_an_epilogue_only_fills_the_context() -> None:
    async def test() -> None:
        async with engine_on(ReferenceBackend()) as engine:
            space = engine.open_space("fill", 0)
            context = space.create_working_set(64)
            assert await space.submit(ForwardCall(context, (1, 2, 3), 0, 3)) == ()
            assert [await next_token(space, context, [4], 3)] == expected([1, 2, 3, 4], 1)
            assert (space.usage.passes, space.usage.forwarded_tokens, space.usage.read_rows) == (2, 4, 1)

    run(test)


BAD_CALLS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"working_set": 99}, InvalidHandle, "no working set 99"),
    ({"tokens": ()}, InvalidHandle, "without tokens"),
    ({"end": 5}, InvalidHandle, "embedded 3 tokens for the places 0…5"),
    ({"positions": (1, 2)}, InvalidHandle, "2 positions for 3 tokens"),
    ({"positions": (254, 255, 256)}, ContextOverflow, "limit is 256"),
    ({"start": 14, "end": 17}, ContextOverflow, "room for 16"),
    ({"start": 254, "end": 257}, ContextOverflow, "limit is 256"),
    ({"tokens": (1, 2, 64)}, InvalidHandle, "token 64.*ids 0…63"),
    ({"tokens": (1, 2, -1)}, InvalidHandle, "token -1"),
    ({"rows": (3,)}, InvalidHandle, r"reads rows \[3\] of 3"),
    ({"rows": (1, 1)}, InvalidHandle, "distinct"),
    ({"rows": ()}, InvalidHandle, "without rows"),
    ({"epilogue": "{}"}, EpilogueError, "epilogue"),
    ({"parameters": (b"1234",)}, EpilogueError, "takes 0 parameters"),
]


@pytest.mark.parametrize(("change", "error", "says"), BAD_CALLS)
def test_a_bad_call_is_refused_by_name_and_harms_nothing(
    change: dict[str, Any], error: type[Exception], says: str
) -> None:
    async def test() -> None:
        async with engine_on(ReferenceBackend()) as engine:
            space = engine.open_space("bad", 0)
            context = space.create_working_set(16)
            fields = {
                "working_set": context,
                "tokens": (1, 2, 3),
                "start": 0,
                "end": 3,
                "rows": (2,),
                "epilogue": ARGMAX,
            }
            with pytest.raises(error, match=says):
                await space.submit(ForwardCall(**(fields | change)))
            assert await greedy(space, [3], 1) == expected([3], 1)
            space.close()
            assert nothing_held(engine)

    run(test)


PAGE_BYTES = 2 * SPEC.layers * SPEC.kv_heads * SPEC.head_dim * 8 * 4


def test_more_pages_than_there_are_is_refused_at_once() -> None:
    async def test() -> None:
        async with engine_on(ReferenceBackend(), kv_memory=4 * PAGE_BYTES) as engine:
            space = engine.open_space("greedy", 0)
            context = space.create_working_set(32)
            with pytest.raises(OutOfPages, match="greedy asked for 5 KV pages of 8 tokens; there are 4 in all"):
                space.create_working_set(40)
            with pytest.raises(OutOfPages, match="5 KV pages"):
                space.reserve(context, 1)
            assert await greedy(space, [1, 2, 3], 3) == expected([1, 2, 3], 3)

    run(test)


def test_equal_beginnings_are_forwarded_once_and_counted() -> None:
    async def test() -> None:
        async with engine_on(ReferenceBackend()) as engine:
            prompt = [*range(30), 7]
            first, second, third = (engine.open_space(name, 0) for name in ("first", "second", "third"))
            assert await greedy(first, prompt, 4) == expected(prompt, 4)
            assert await greedy(second, prompt, 4) == expected(prompt, 4)
            other = [*range(20), 50, 51]
            assert await greedy(third, other, 4) == expected(other, 4)
            assert (first.usage.cached_tokens, second.usage.cached_tokens, third.usage.cached_tokens) == (0, 24, 16)
            assert second.usage.forwarded_tokens == first.usage.forwarded_tokens - 24

    run(test)


def test_equal_beginnings_asked_at_the_same_time_are_forwarded_once() -> None:
    async def test() -> None:
        async with engine_on(ReferenceBackend()) as engine:
            # Longer than a step of 32 rows, so that the first one goes in chunks, and the others follow it page by page.
            prompts = [[*range(60), last] for last in range(6)] + [[*range(20), *range(9, 50)]]
            spaces = [engine.open_space(f"s{number}", 0) for number in range(len(prompts))]
            found = await asyncio.gather(*(greedy(space, p, 3) for space, p in zip(spaces, prompts, strict=True)))
            assert list(found) == [expected(prompt, 3) for prompt in prompts]
            assert [space.usage.cached_tokens for space in spaces] == [0, 56, 56, 56, 56, 56, 16]

    run(test)


def test_who_waits_for_another_s_page_computes_it_when_the_other_goes_away_or_fails() -> None:
    async def test() -> None:
        backend = ReferenceBackend()
        async with engine_on(backend) as engine:
            prompt = [*range(60), 7]
            first, second = engine.open_space("first", 0), engine.open_space("second", 0)
            asked = [asyncio.create_task(greedy(space, prompt, 3)) for space in (first, second)]
            while not second.waiting:
                await asyncio.sleep(0)
            first.close()
            assert await asked[1] == expected(prompt, 3)
            with pytest.raises(InferletCancelled):
                await asked[0]
            backend.fail_next = DeviceLost("the device went away")
            third, fourth = engine.open_space("third", 0), engine.open_space("fourth", 0)
            other = [*range(1, 61), 7]
            outcomes = await asyncio.gather(greedy(third, other, 3), greedy(fourth, other, 3), return_exceptions=True)
            assert isinstance(outcomes[0], DeviceLost)
            assert outcomes[1] == expected(other, 3)

    run(test)


def test_a_prompt_found_whole_still_computes_the_rows_it_reads() -> None:
    async def test() -> None:
        async with engine_on(ReferenceBackend()) as engine:
            prompt = list(range(24))
            one, two = engine.open_space("one", 0), engine.open_space("two", 0)
            assert await greedy(one, prompt, 2) == await greedy(two, prompt, 2) == expected(prompt, 2)
            assert two.usage.cached_tokens == 16

    run(test)


def test_a_custom_mask_decides_what_each_token_sees() -> None:
    async def test() -> None:
        async with engine_on(ReferenceBackend()) as engine:
            space = engine.open_space("mask", 0)
            tokens = [3, 50, 4, 51, 5]
            seen = [0b00001, 0b00010, 0b00101, 0b01000, 0b10101]
            for split in (5, 2):
                context = space.create_working_set(16)
                for first in range(0, 5, split):
                    part = slice(first, first + split)
                    count = len(tokens[part])
                    call = ForwardCall(
                        context,
                        tuple(tokens[part]),
                        first,
                        first + count,
                        (count - 1,),
                        ARGMAX,
                        positions=(0, 9, 1, 9, 2)[part],
                        mask=tuple(seen[part]),
                    )
                    (best,) = await space.submit(call)
                # The tokens that each sees, at the positions they would have without the others.
                assert [int(best.data[0])] == expected([3, 4, 5], 1)
            with pytest.raises(InvalidHandle, match="masks for 1 of 2 tokens"):
                await space.submit(ForwardCall(context, (1, 2), 5, 7, mask=(1,)))
            assert await greedy(space, [3, 4, 5], 4) == expected([3, 4, 5], 4)

    run(test)


def test_a_masked_or_moved_context_is_never_shared() -> None:
    async def test() -> None:
        async with engine_on(ReferenceBackend()) as engine:
            odd, plain = engine.open_space("odd", 0), engine.open_space("plain", 0)
            context = odd.create_working_set(32)
            await odd.submit(ForwardCall(context, tuple(range(8)), 0, 8))
            odd.hide(context, 2, (True, True))
            masked = await next_token(odd, context, list(range(8, 20)), 8)
            moved = odd.create_working_set(32)
            await odd.submit(ForwardCall(moved, tuple(range(20)), 0, 20, positions=tuple(range(5, 25))))
            assert await greedy(plain, list(range(20)), 2) == expected(list(range(20)), 2)
            assert plain.usage.cached_tokens == 8
            odd.hide(context, 2, (False, False))
            assert masked in range(64)

    run(test)


def test_cached_prefixes_make_room_before_anybody_is_disturbed() -> None:
    async def test() -> None:
        async with engine_on(ReferenceBackend(), kv_memory=4 * PAGE_BYTES) as engine:
            for start in range(5):
                prompt = [start, *range(16)]
                space = engine.open_space(f"s{start}", 0)
                assert await greedy(space, prompt, 3) == expected(prompt, 3)
                space.close()
            assert engine.prefixes.evictions > 0
            assert engine.residency.pressure.parked == engine.residency.pressure.ended == 0

    run(test)


@pytest.mark.parametrize("park_memory", [1 << 20, 0], ids=["host", "disk"])
def test_waiting_contexts_are_parked_and_come_back_as_they_were(park_memory: int) -> None:
    async def test() -> None:
        spill = DictSpill()
        backend = ReferenceBackend()
        async with engine_on(backend, spill=spill, kv_memory=6 * PAGE_BYTES, park_memory=park_memory) as engine:
            spaces = [engine.open_space(f"s{i}", 0) for i in range(4)]
            prompts = [[i * 3 + 1, *range(i, i + 18)] for i in range(4)]
            contexts = [space.create_working_set(32) for space in spaces]
            answers: list[list[int]] = [[] for _ in spaces]
            for turn in range(6):
                for i, space in enumerate(spaces):
                    pending = prompts[i] if turn == 0 else answers[i][-1:]
                    seen = 0 if turn == 0 else len(prompts[i]) + turn - 1
                    answers[i].append(await next_token(space, contexts[i], pending, seen))
            assert answers == [expected(prompt, 6) for prompt in prompts]
            pressure = engine.residency.pressure
            assert pressure.parked >= pressure.restored > 0
            assert pressure.ended == 0
            assert sum(space.usage.parked_pages for space in spaces) == pressure.parked
            assert bool(spill.written) == (park_memory == 0)
            for space in spaces:
                space.close()
            assert nothing_held(engine)
            await greedy(engine.open_space("after", 0), [1], 1)
            assert not spill.contents
            assert engine.parking.nbytes == 0

    run(test)


def test_while_contexts_push_each_other_out_newcomers_wait_for_the_others() -> None:
    async def test() -> None:
        async with engine_on(ReferenceBackend(), kv_memory=6 * PAGE_BYTES, speculation_depth=0) as engine:
            spaces = [engine.open_space(f"old{i}", 0) for i in range(3)]
            contexts = [space.create_working_set(32) for space in spaces]
            last = [await next_token(spaces[i], contexts[i], list(range(i, i + 18)), 0) for i in range(3)]
            late = engine.open_space("late", 0)
            place = 18
            while sum(engine.residency.pressure.recent) < engine.pool.total:
                for i in range(3):
                    last[i] = await next_token(spaces[i], contexts[i], last[i : i + 1], place)
                place += 1
                assert place < 32
            newcomer = asyncio.ensure_future(greedy(late, [5, 6], 1))
            await asyncio.sleep(0)
            old = ForwardCall(contexts[0], (last[0],), place, place + 1, (0,), ARGMAX)
            await spaces[0].submit(old)
            assert late.usage.passes == 0
            assert await newcomer == expected([5, 6], 1)
            assert engine.residency.pressure.rate > 0

    run(test)


def test_when_nobody_can_wait_the_newest_ends_and_the_others_finish_as_alone() -> None:
    async def test() -> None:
        async with engine_on(ReferenceBackend(), kv_memory=5 * PAGE_BYTES) as engine:
            prompts = [[i, *range(20, 26)] for i in range(3)]
            spaces = [engine.open_space(f"s{i}", 0) for i in range(3)]
            runs = [asyncio.ensure_future(greedy(s, p, 12)) for s, p in zip(spaces, prompts, strict=True)]
            outcomes = await asyncio.gather(*runs, return_exceptions=True)
            assert outcomes[:2] == [expected(prompt, 12) for prompt in prompts[:2]]
            assert isinstance(outcomes[2], OutOfPages)
            assert "s2 was ended: all 5 KV pages of 8 tokens are in use and it started last" in str(outcomes[2])
            with pytest.raises(OutOfPages):
                spaces[2].create_working_set(1)
            assert engine.residency.pressure.ended == 1

    run(test)


def test_copy_on_write_without_a_free_page_parks_the_idle_sibling() -> None:
    async def test() -> None:
        async with engine_on(ReferenceBackend(), kv_memory=2 * PAGE_BYTES) as engine:
            space = engine.open_space("tight", 0)
            context, other = space.create_working_set(8), space.create_working_set(8)
            await next_token(space, context, [1, 2, 3], 0)
            await next_token(space, other, [5], 0)
            branch = space.fork(context)
            assert [await next_token(space, branch, [4], 3)] == expected([1, 2, 3, 4], 1)
            assert [await next_token(space, other, [6], 1)] == expected([5, 6], 1)
            assert [await next_token(space, context, [9], 3)] == expected([1, 2, 3, 9], 1)
            assert [await next_token(space, branch, [7], 4)] == expected([1, 2, 3, 4, 7], 1)

    run(test)


def test_passes_without_common_pages_share_steps_and_a_second_step_waits_behind_the_first() -> None:
    async def test() -> None:
        backend = ReferenceBackend()
        async with engine_on(backend, sequences=2) as engine:
            spaces = [engine.open_space(f"s{i}", 0) for i in range(4)]
            answers = await asyncio.gather(*(greedy(s, [i + 1], 5) for i, s in enumerate(spaces)))
            assert answers == [expected([i + 1], 5) for i in range(4)]
            assert engine.statistics.largest_step == 2

    run(test)


def test_closing_a_space_cancels_its_waiting_passes_and_returns_its_pages() -> None:
    async def test() -> None:
        async with engine_on(ReferenceBackend()) as engine:
            space = engine.open_space("gone", 0)
            context = space.create_working_set(64)
            calls = [space.submit(ForwardCall(context, (1,), i, i + 1, (0,), ARGMAX)) for i in range(5)]
            await asyncio.sleep(0)
            space.close()
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(outcome) for outcome in outcomes} <= {tuple, InferletCancelled}
            assert isinstance(outcomes[-1], InferletCancelled)
            while not nothing_held(engine):
                await asyncio.sleep(0.001)
            with pytest.raises(InferletCancelled, match="gone has ended"):
                space.create_working_set(1)

    run(test)


def test_a_cancelled_future_is_skipped_and_the_next_call_runs() -> None:
    async def test() -> None:
        async with engine_on(ReferenceBackend()) as engine:
            space = engine.open_space("cancel", 0)
            context = space.create_working_set(64)
            doomed = space.submit(ForwardCall(context, (9,), 0, 1, (0,), ARGMAX))
            doomed.cancel()
            assert [await next_token(space, context, [1, 2], 0)] == expected([1, 2], 1)

    run(test)


async def until_refused(engine: Engine, space: Space, context: int, token: int, seen: int) -> None:
    """Decodes until a pass is refused, with keys and values that are no numbers after the fourth."""
    for count in range(1, 20):
        token = await next_token(space, context, [token], seen)
        seen += 1
        if count == 4:
            poison(engine, space)
    raise AssertionError("no pass was refused")


def poison(engine: Engine, space: Space) -> None:
    """The keys and values of its context become NaN, as those of an overflow would be."""
    [context] = space.contexts()
    device = engine._device
    for entry in context.entries:
        if entry.page is not None:
            device.pages.load(entry.page, b"\xff" * device.pages.nbytes)


@pytest.mark.parametrize("depth", [0, 1])
def test_logits_that_are_no_numbers_are_an_error_of_the_pass_they_are_of(depth: int) -> None:
    async def test() -> None:
        async with engine_on(ReferenceBackend(), speculation_depth=depth) as engine:
            bad, good = engine.open_space("bad", 0), engine.open_space("good", 0)
            context = bad.create_working_set(64)
            await next_token(bad, context, [3, 1, 4], 0)
            refused, answer = await asyncio.gather(
                until_refused(engine, bad, context, 5, 3), greedy(good, [9, 2, 6], 12), return_exceptions=True
            )
            assert type(refused) is NotFinite
            assert "tiny computed NaN or infinity for bad's token at position" in refused.message
            assert answer == expected([9, 2, 6], 12)
            assert await greedy(bad, [9, 2, 6], 3) == expected([9, 2, 6], 3)
            for space in (bad, good):
                space.close()
            await asyncio.sleep(0.05)
            assert nothing_held(engine)

    run(test)


def test_a_pass_that_reads_nothing_has_no_logits_to_check() -> None:
    async def test() -> None:
        async with engine_on(ReferenceBackend()) as engine:
            bad, silent = engine.open_space("bad", 0), engine.open_space("silent", 0)
            context, other = bad.create_working_set(64), silent.create_working_set(64)
            assert await silent.submit(ForwardCall(other, (1, 2, 3), 0, 3, ())) == ()
            await next_token(bad, context, [3, 1, 4], 0)
            poison(engine, bad)
            # In one step, so that the row of the one is the last before the other's.
            refused, unread = await asyncio.gather(
                next_token(bad, context, [5, 6], 3),
                silent.submit(ForwardCall(other, (4, 5), 3, 5, ())),
                return_exceptions=True,
            )
            assert type(refused) is NotFinite
            assert unread == ()
            assert [await next_token(silent, other, [6], 5)] == expected([1, 2, 3, 4, 5, 6], 1)

    run(test)


def test_a_model_of_damaged_weights_says_so_at_the_first_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = random_weights()
    damaged["norm"][3] = np.nan
    monkeypatch.setattr(tiny, "random_weights", lambda: damaged)

    async def test() -> None:
        async with engine_on(ReferenceBackend()) as engine:
            space = engine.open_space("first", 0)
            for _ in range(2):
                with pytest.raises(NotFinite, match="position 2: its weights are damaged.*import the model again"):
                    await greedy(space, [1, 2, 3], 4)
                with pytest.raises(NotFinite, match="position 2: its weights are damaged"):
                    await read_out(engine, [1, 2, 3], ["hidden", None], (2,))

    run(test)


def test_a_lost_device_reaches_every_call_of_the_step_and_the_engine_goes_on() -> None:
    async def test() -> None:
        backend = ReferenceBackend()
        async with engine_on(backend) as engine:
            space = engine.open_space("lost", 0)
            contexts = [space.create_working_set(8) for _ in range(3)]
            backend.fail_next = DeviceLost("the device went away")
            calls = [space.submit(ForwardCall(c, (1,), 0, 1)) for c in contexts]
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [DeviceLost] * 3
            assert await greedy(space, [1], 1) == expected([1], 1)
            space.close()
            assert nothing_held(engine)

    run(test)


def test_a_small_device_gets_fewer_pages_and_still_answers() -> None:
    async def test() -> None:
        async with engine_on(ReferenceBackend(memory=240_000), kv_memory=0) as engine:
            assert 1 <= engine.pool.total < 100
            assert await greedy(engine.open_space("small", 0), [1, 2, 3], 3) == expected([1, 2, 3], 3)

    run(test)


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        ({"kv_memory": 1 << 20}, "Lower kv_memory in the configuration, or take a smaller model"),
        ({"kv_memory": 0, "memory": 1024}, r"Raise memory to \d+ MiB in the configuration, or take a smaller model"),
        (
            {"kv_memory": 1 << 20, "memory": 1024},
            r"Lower kv_memory or raise memory to \d+ MiB in the configuration, or",
        ),
        ({"kv_memory": 0, "memory": 1 << 40}, "Take a smaller model, or a backend with more memory"),
        ({"kv_memory": 0}, "Take a smaller model, or a backend with more memory"),
    ],
)
def test_a_model_that_cannot_fit_is_refused_before_anything_is_allocated_with_what_would_help(
    settings: dict[str, int], remedy: str
) -> None:
    async def test() -> None:
        backend = ReferenceBackend(memory=1000)
        with pytest.raises(
            OutOfMemory,
            match=r"^tiny needs 0\.1 MiB for its weights, .* reference backend may use 0\.0 MiB of NumPy reference\. "
            + remedy,
        ):
            await open_tiny(backend, **settings)
        assert backend.used == 0

    run(test)


def test_tokens_at_other_positions_are_no_shared_prefix() -> None:
    async def answers(space: Space, moved: bool) -> int:
        tokens = tuple(range(1, 20))
        positions = tuple(range(3, 22)) if moved else None
        context = space.create_working_set(24)
        (best,) = await space.submit(ForwardCall(context, tokens, 0, 19, (18,), ARGMAX, positions=positions))
        return int(best.data[0])

    async def test() -> None:
        async with engine_on(RememberingBackend(SPEC.vocabulary, PAGE)) as engine:
            first, second = engine.open_space("first", 0), engine.open_space("second", 0)
            assert await answers(first, moved=False) == answer(((i + 1, i) for i in range(19)), SPEC.vocabulary)
            assert await answers(second, moved=True) == answer(((i + 1, i + 3) for i in range(19)), SPEC.vocabulary)
            assert await answers(second, moved=True) == await answers(first, moved=True)
            assert first.usage.cached_tokens == second.usage.cached_tokens == 0
            assert await answers(first, moved=False) == await answers(second, moved=False)
            assert first.usage.cached_tokens == second.usage.cached_tokens == 16

    run(test)


def test_what_is_hidden_before_it_is_written_stays_hidden_however_long_the_pass_is() -> None:
    async def test() -> None:
        for rows in (8, 32):
            async with engine_on(RememberingBackend(SPEC.vocabulary, PAGE), rows=rows) as engine:
                space = engine.open_space("hidden", 0)
                context = space.create_working_set(24)
                space.hide(context, 2, (True,) * 12)
                (best,) = await space.submit(ForwardCall(context, tuple(range(20)), 0, 20, (19,), ARGMAX))
                seen = ((i, i) for i in range(20) if not 2 <= i < 14)
                assert int(best.data[0]) == answer(seen, SPEC.vocabulary)

    run(test)
