"""The engine over tiny models with recurrent state, on the reference: what comes back is what a lone whole pass would give, and
what can't be is told."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pie_edge.control.engine import Engine
from pie_edge.control.observation import Observation
from pie_edge.control.queue import ForwardCall
from pie_edge.control.space import Space
from pie_edge.errors import (
    DeviceLost,
    InvalidHandle,
    Irreversible,
    OutOfMemory,
    OutOfPages,
    PieError,
    Unsupported,
)
from tests.backend.test_engine import DictSpill, greedy, next_token, nothing_held
from tests.support.oracle_run import log_probabilities
from tests.support.reference_backend import ReferenceBackend
from tests.support.tiny import ARGMAX
from tests.support.tiny_hybrid import CONVOLVED, DELTA, KV_PAGE_BYTES, loaded, open_hybrid

PROMPTS = [[3, 1, 4, 1, 5], [9, 2, 6], [5] * 45, [35], list(range(20))]
LONG = [(7 * n + n * n) % 60 for n in range(40)]
SPECS = pytest.mark.parametrize("spec", [DELTA, CONVOLVED], ids=["delta", "convolutions"])


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 60))


@asynccontextmanager
async def engine_on(
    spec: Any = DELTA, backend: ReferenceBackend | None = None, **settings: Any
) -> AsyncIterator[Engine]:
    """At the end nothing may be held by anybody."""
    engine = await open_hybrid(backend or ReferenceBackend(), spec, **settings)
    try:
        yield engine
        for space in list(engine.spaces):
            space.close()
        for _ in range(100):
            await asyncio.sleep(0)
        assert engine.slots is not None
        assert nothing_held(engine)
        assert engine.slots.free == engine.slots.total
        assert not engine.slots.any_parked
    finally:
        await engine.close()


@functools.cache
def _best(spec: Any, tokens: tuple[int, ...]) -> int:
    return int(log_probabilities(loaded(spec), list(tokens))[-1].argmax())


def expected(spec: Any, prompt: list[int], count: int = 1) -> list[int]:
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(_best(spec, tuple(tokens)))
    return tokens[len(prompt) :]


def slots_used(engine: Engine) -> int:
    assert engine.slots is not None
    return engine.slots.total - engine.slots.free


@SPECS
def test_generation_equals_whole_passes_alone_and_together(spec: Any) -> None:
    async def test() -> None:
        async with engine_on(spec, sequences=16) as engine:
            alone = [await greedy(engine.open_space("a", 0), prompt, 20) for prompt in PROMPTS]
            together = await asyncio.gather(
                *(greedy(engine.open_space(f"s{i}", 0), p, 20) for i, p in enumerate(PROMPTS))
            )
            assert engine.statistics.largest_step > 1
            assert engine.calls.ahead.hits > 0
        assert alone == together == [expected(spec, prompt, 20) for prompt in PROMPTS]

    run(test)


@SPECS
@pytest.mark.parametrize("rows", [1, 3, 8, 17, 64])
def test_a_prompt_in_chunks_of_any_size_gives_what_one_piece_gives(spec: Any, rows: int) -> None:
    async def test() -> None:
        async with engine_on(spec, rows=rows) as engine:
            assert await greedy(engine.open_space("a", 0), LONG, 3) == expected(spec, LONG, 3)

    run(test)


@SPECS
def test_a_fork_costs_nothing_until_it_writes_and_neither_disturbs_the_other(spec: Any) -> None:
    async def test() -> None:
        async with engine_on(spec) as engine:
            space = engine.open_space("fork", 0)
            context = space.create_working_set(128)
            await next_token(space, context, LONG, 0)
            before = slots_used(engine)
            branches = [space.fork(context) for _ in range(5)]
            assert slots_used(engine) == before
            one = await next_token(space, context, [1, 2], 40)
            others = [await next_token(space, branch, [3 + n], 40) for n, branch in enumerate(branches)]
            assert [one] == expected(spec, [*LONG, 1, 2])
            assert others == [expected(spec, [*LONG, 3 + n])[0] for n in range(5)]
            assert [await next_token(space, context, [4], 42)] == expected(spec, [*LONG, 1, 2, 4])

    run(test)


@SPECS
@pytest.mark.parametrize("depth", [0, 1])
def test_rejected_drafts_are_taken_back_however_often(spec: Any, depth: int) -> None:
    """Passes of a known token and drafts of which only the first few stay, many times over."""

    async def test() -> None:
        async with engine_on(spec, speculation_depth=depth) as engine:
            assert engine.abilities.reversible is not None
            space = engine.open_space("drafts", 0)
            context = space.create_working_set(256)
            tokens = LONG[:10]
            best = await next_token(space, context, tokens, 0)
            for turn in range(14):
                drafts = [(turn + 3 * n) % 60 for n in range(engine.abilities.reversible)]
                await next_token(space, context, [best, *drafts], len(tokens))
                tokens += [best, *drafts[: turn % 4]]
                best = await next_token(space, context, [turn], len(tokens))
                tokens.append(turn)
                assert [best] == expected(spec, tokens)

    run(test)


@SPECS
def test_as_many_tokens_as_are_promised_can_be_taken_back_one_by_one_and_with_passes_foreseen(spec: Any) -> None:
    async def test() -> None:
        async with engine_on(spec) as engine:
            assert engine.abilities.reversible is not None
            space = engine.open_space("back", 0)
            context = space.create_working_set(128)
            tokens = list(LONG[:20])
            best = await next_token(space, context, tokens, 0)
            for length in range(21, 60):
                tokens.append(best)
                best = await next_token(space, context, tokens[-1:], length - 1)
                branch, back = space.fork(context), length - engine.abilities.reversible
                assert [await next_token(space, branch, [11], back)] == expected(spec, [*tokens[:back], 11])
                space.drop(branch)
            assert engine.calls.ahead.hits > 30

    run(test)


@SPECS
def test_what_can_no_longer_be_taken_back_is_told_with_what_can_and_the_start_always_can(spec: Any) -> None:
    async def test() -> None:
        async with engine_on(spec, speculation_depth=0) as engine:
            space = engine.open_space("asker", 0)
            context = space.create_working_set(128)
            await next_token(space, context, LONG, 0)
            with pytest.raises(Irreversible) as refused:
                await next_token(space, context, [1], 10)
            assert str(refused.value) == (
                "asker goes on from token 10 of 40, and tiny-hybrid has recurrent state, which goes back to 24, or to 0. Fork a "
                "context before what may have to be taken back, or forward it from token 0; model.reversible_tokens() is how "
                "many can always be"
            )
            # It has changed nothing, and what it names is so.
            assert [await next_token(space, context, [2], 24)] == expected(spec, [*LONG[:24], 2])
            assert [await next_token(space, context, [9, 8], 0)] == expected(spec, [9, 8])
            assert [await next_token(space, context, [7], 2)] == expected(spec, [9, 8, 7])

    run(test)


def test_a_gap_between_tokens_is_told() -> None:
    async def test() -> None:
        async with engine_on() as engine:
            space = engine.open_space("asker", 0)
            context = space.create_working_set(64)
            await next_token(space, context, [1, 2, 3], 0)
            with pytest.raises(InvalidHandle, match="goes on from token 5, and 3 tokens come before: tiny-hybrid has"):
                await next_token(space, context, [1], 5)
            assert [await next_token(space, context, [1], 3)] == expected(DELTA, [1, 2, 3, 1])

    run(test)


@SPECS
def test_positions_of_ones_own_are_those_of_attention(spec: Any) -> None:
    """Recurrent layers have no positions: moved by as much, all tokens say the same."""

    async def test() -> None:
        async with engine_on(spec) as engine:
            space = engine.open_space("moved", 0)
            context = space.create_working_set(64)
            tokens = tuple(LONG[:20])
            call = ForwardCall(context, tokens, 0, 20, (19,), ARGMAX, positions=tuple(range(5, 25)))
            (best,) = await space.submit(call)
            assert [best.data[0]] == expected(spec, list(tokens))

    run(test)


def test_attention_is_observed_in_the_layers_that_attend() -> None:
    async def test() -> None:
        async with engine_on() as engine:
            assert engine.abilities.observable_layers == 1
            space = engine.open_space("observer", 0)
            context = space.create_working_set(64)
            observed = Observation((0,), (19,))
            (masses,) = await space.submit(ForwardCall(context, tuple(LONG[:20]), 0, 20, observed=observed))
            assert masses.shape == (1, 3)
            assert sum(masses.data) == pytest.approx(1, abs=1e-5)

    run(test)


# ---- what is for attention alone

Trick = Callable[[Space, int], Any]
TRICKS: dict[str, tuple[Trick, str]] = {
    "hidden tokens": (lambda s, c: s.hide(c, 3, (True,)), "masks tokens"),
    "a mask": (lambda s, c: s.submit(ForwardCall(c, (1,), 40, 41, mask=(3,))), "gave masks for a pass"),
    "pages from the middle": (lambda s, c: s.slice(c, 1, 2), "cuts a context's pages from 1 on out of it"),
    "pages that others follow": (lambda s, c: s.discard(c, 1, 2), "discards pages 1…3 before others"),
}


@pytest.mark.parametrize("name", TRICKS)
def test_tricks_on_keys_and_values_are_refused_and_change_nothing(name: str) -> None:
    trick, said = TRICKS[name]

    async def test() -> None:
        async with engine_on() as engine:
            space = engine.open_space("asker", 0)
            context = space.create_working_set(64)
            await next_token(space, context, LONG, 0)
            with pytest.raises(Unsupported) as refused:
                trick(space, context)
            assert str(refused.value).startswith(
                f"asker {said}: that is for attention alone, and tiny-hybrid has recurrent state, in which every token"
            )
            assert [await next_token(space, context, [1], 40)] == expected(DELTA, [*LONG, 1])

    run(test)


def test_single_pages_are_refused_with_the_reason() -> None:
    async def test() -> None:
        async with engine_on() as engine:
            with pytest.raises(
                Unsupported, match="asker asks for single KV pages or embeds, and tiny-hybrid has recurr"
            ):
                engine.handles(engine.open_space("asker", 0))

    run(test)


@SPECS
def test_the_last_pages_can_be_discarded_and_the_first_ones_be_a_context_of_their_own(spec: Any) -> None:
    async def test() -> None:
        async with engine_on(spec, speculation_depth=0) as engine:
            space = engine.open_space("cutter", 0)
            context = space.create_working_set(64)
            await next_token(space, context, LONG[:28], 0)
            first = space.slice(context, 0, 3)
            space.discard(context, 3, 5)
            space.reserve(first, 1)
            space.reserve(context, 1)
            assert [await next_token(space, first, [1], 24)] == expected(spec, [*LONG[:24], 1])
            with pytest.raises(InvalidHandle, match="goes on from token 28, and 24 tokens come before"):
                await next_token(space, context, [2], 28)
            assert [await next_token(space, context, [2], 24)] == expected(spec, [*LONG[:24], 2])

    run(test)


@SPECS
def test_prompts_that_begin_alike_are_computed_each_for_itself_and_counted_so(spec: Any) -> None:
    async def test() -> None:
        async with engine_on(spec) as engine:
            for name in "ab":
                space = engine.open_space(name, 0)
                assert await greedy(space, [*LONG, 1], 2) == expected(spec, [*LONG, 1], 2)
                assert (space.usage.cached_tokens, space.usage.recomputed_tokens) == (0, 0)
                assert space.usage.forwarded_tokens == len(LONG) + 2
            assert len(engine.prefixes) == 0

    run(test)


# ---- keeping and sharing


@SPECS
@pytest.mark.parametrize("length", [1, 16, 33, 40])
def test_what_follows_a_loaded_context_is_what_follows_the_saved_one(spec: Any, length: int) -> None:
    """The first tokens too, as far as state goes back."""

    async def test() -> None:
        async with engine_on(spec) as engine:
            space = engine.open_space("saver", 0)
            context = space.create_working_set(64)
            await next_token(space, context, LONG[: length + 3], 0)
            content = await engine.save_context(space, context, length)
        async with engine_on(spec) as engine:
            space = engine.open_space("loader", 0)
            context = space.create_working_set(64)
            engine.load_context(space, context, content)
            assert [await next_token(space, context, [50], length)] == expected(spec, [*LONG[:length], 50])
            assert [await next_token(space, context, [5], length)] == expected(spec, [*LONG[:length], 5])
            assert space.usage.forwarded_tokens == 2

    run(test)


def test_a_part_that_state_does_not_go_back_to_is_not_saved() -> None:
    async def test() -> None:
        async with engine_on() as engine:
            space = engine.open_space("saver", 0)
            context = space.create_working_set(64)
            await next_token(space, context, LONG, 0)
            with pytest.raises(Irreversible, match="saver saves a context up to token 8 of 40, and tiny-hybrid has"):
                await engine.save_context(space, context, 8)
            content = await engine.save_context(space, context, 0)
            assert (content.length, content.state) == (0, None)

    run(test)


@SPECS
def test_a_context_under_a_key_is_found_as_it_was_shared(spec: Any) -> None:
    async def test() -> None:
        async with engine_on(spec) as engine:
            one, other = engine.open_space("one", 0), engine.open_space("other", 0)
            context = one.create_working_set(64)
            await next_token(one, context, LONG, 0)
            one.share(context, "key")
            await next_token(one, context, [1, 2, 3], 40)
            one.close()
            found = other.adopt("key")
            assert found is not None
            assert [await next_token(other, found, [4], 40)] == expected(spec, [*LONG, 4])
            assert other.unshare("key")

    run(test)


# ---- memory


@pytest.mark.parametrize("park_memory", [1 << 20, 0], ids=["host", "disk"])
def test_states_of_waiting_contexts_are_parked_and_come_back_as_they_were(park_memory: int) -> None:
    async def test() -> None:
        spill = DictSpill()
        async with engine_on(spill=spill, state_memory=1, park_memory=park_memory) as engine:
            assert engine.slots is not None
            assert engine.slots.total == 4
            spaces = [engine.open_space(f"s{i}", 0) for i in range(6)]
            contexts = [space.create_working_set(64) for space in spaces]
            prompts = [[i * 3 + 1, *range(i, i + 18)] for i in range(6)]
            answers: list[list[int]] = [[] for _ in spaces]
            for turn in range(4):
                for i, space in enumerate(spaces):
                    pending = prompts[i] if turn == 0 else answers[i][-1:]
                    answers[i].append(await next_token(space, contexts[i], pending, 18 + turn if turn else 0))
            assert answers == [expected(DELTA, prompt, 4) for prompt in prompts]
            assert (
                sum(space.usage.parked_states for space in spaces) >= sum(s.usage.restored_states for s in spaces) > 0
            )
            assert bool(spill.written) == (park_memory == 0)
            assert engine.residency.pressure.parked == 0  # pages there were enough of

    run(test)


def test_forks_that_all_want_to_go_on_take_turns_on_the_slots_there_are() -> None:
    async def test() -> None:
        async with engine_on(state_memory=1, sequences=16) as engine:
            space = engine.open_space("forks", 0)
            context = space.create_working_set(128)
            await next_token(space, context, LONG, 0)
            branches = [space.fork(context) for _ in range(9)]
            for place in range(40, 60):
                found = await asyncio.gather(
                    *(next_token(space, b, [n + place - 40], place) for n, b in enumerate(branches))
                )
            assert found == [expected(DELTA, [*LONG, *range(n, n + 20)])[0] for n in range(9)]

    run(test)


def test_when_no_state_can_wait_the_newest_ends_with_what_there_is() -> None:
    async def test() -> None:
        async with engine_on(state_memory=1, park_memory=0) as engine:
            spaces = [engine.open_space(f"s{i}", 0) for i in range(3)]
            runs = [asyncio.ensure_future(greedy(s, [i, *range(20)], 20)) for i, s in enumerate(spaces)]
            outcomes = await asyncio.gather(*runs, return_exceptions=True)
            assert outcomes[:2] == [expected(DELTA, [i, *range(20)], 20) for i in range(2)]
            assert isinstance(outcomes[2], OutOfPages)
            assert str(outcomes[2]) == (
                "s2 was ended: all 4 slots of tiny-hybrid's recurrent state are in use and it started last. Run fewer inferlets "
                "at once, keep fewer contexts, or raise state_memory in the configuration"
            )

    run(test)


def test_forks_that_nobody_waits_for_make_room_together_with_what_they_share() -> None:
    """One needs two slots, another one needs one beside its own, and there is none: forks that share hold the rest."""

    async def test() -> None:
        async with engine_on(state_memory=1, speculation_depth=0) as engine:
            holder, first, second = (engine.open_space(name, 0) for name in ("holder", "first", "second"))
            ones = {space: space.create_working_set(64) for space in (first, second)}
            await next_token(first, ones[first], LONG[:20], 0)
            await next_token(second, ones[second], LONG[:16], 0)
            for count in (20, 10):
                context = holder.create_working_set(64)
                await next_token(holder, context, LONG[:count], 0)
                forks = [context, *(holder.fork(context) for _ in range(3))]
            asked = [next_token(first, ones[first], [1], 20), next_token(second, ones[second], [1], 16)]
            found = await asyncio.gather(*asked)
            assert found == [expected(DELTA, [*LONG[:count], 1])[0] for count in (20, 16)]
            found = await asyncio.gather(*(next_token(holder, fork, [n], 10) for n, fork in enumerate(forks)))
            assert found == [expected(DELTA, [*LONG[:10], n])[0] for n in range(4)]

    run(test)


def test_a_failed_step_loses_the_state_of_its_contexts_alone_and_they_can_begin_anew() -> None:
    async def test() -> None:
        backend = ReferenceBackend()
        async with engine_on(backend=backend, speculation_depth=0) as engine:
            space = engine.open_space("unlucky", 0)
            context, other = space.create_working_set(64), space.create_working_set(64)
            await next_token(space, context, LONG[:8], 0)
            await next_token(space, other, LONG[:8], 0)
            branch = space.fork(context)
            backend.fail_next = DeviceLost("the device went away")
            with pytest.raises(DeviceLost):
                await next_token(space, context, [1], 8)
            with pytest.raises(
                Irreversible, match="goes on from token 8, and tiny-hybrid's recurrent state .* was lost"
            ):
                await next_token(space, context, [1], 8)
            assert [await next_token(space, branch, [1], 8)] == expected(DELTA, [*LONG[:8], 1])
            assert [await next_token(space, other, [2], 8)] == expected(DELTA, [*LONG[:8], 2])
            assert [await next_token(space, context, [*LONG[:8], 3], 0)] == expected(DELTA, [*LONG[:8], 3])

    run(test)


def test_pages_are_counted_by_the_layers_that_attend_and_slots_by_the_state_there_is() -> None:
    async def test() -> None:
        async with engine_on(kv_memory=10 * KV_PAGE_BYTES, state_memory=0) as engine:
            assert engine.pool.total == 10
            assert engine.slots is not None
            assert engine.slots.total == 2 * 8  # two for each sequence of a step
            states = engine.slot_states
            assert {state.name for state in states} == {"conv_tail.0", "qkv_tail.0", "a_tail.0", "b_tail.0", "delta.0"}
            each = sum(state.page_bytes for state in states)
        async with engine_on(kv_memory=10 * KV_PAGE_BYTES, state_memory=7 * each + each // 2) as engine:
            assert engine.slots is not None
            assert engine.slots.total == 7
        backend = ReferenceBackend(memory=80_000)
        says = r"needs 0\.1 MiB for its weights, 0\.0 for 5 slots of recurrent state, .* Lower state_memory in the conf"
        with pytest.raises(OutOfMemory, match=says):
            await open_hybrid(backend, kv_memory=0, state_memory=1)
        assert backend.used == 0

    run(test)


def test_errors_of_the_state_are_errors_of_the_pass_and_the_next_one_runs() -> None:
    """In a queue behind passes that run: what is refused leaves the others as they are."""

    async def test() -> None:
        async with engine_on(speculation_depth=0) as engine:
            space = engine.open_space("asker", 0)
            context = space.create_working_set(128)
            calls = [(LONG, 0), ([1], 40), ([2], 5), ([3], 41), ([4], 42)]
            asked = [asyncio.ensure_future(next_token(space, context, tokens, start)) for tokens, start in calls]
            found = await asyncio.gather(*asked, return_exceptions=True)
            assert isinstance(found[2], PieError)
            assert [type(one) for one in found] == [int, int, Irreversible, int, int]
            assert found[4:] == expected(DELTA, [*LONG, 1, 3, 4])

    run(test)
