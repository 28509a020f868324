"""Run-ahead changes time and never a token: whatever programs do, the answers are those without it."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from pie_edge.control.engine import Engine
from pie_edge.control.epilogues import Group
from pie_edge.control.queue import ForwardCall
from pie_edge.control.space import Space
from pie_edge.errors import DeviceLost
from pie_edge.sampling.presets import sample
from tests.backend.test_engine import PAGE_BYTES, engine_on, expected, greedy, next_token, nothing_held, run
from tests.support.reference_backend import ReferenceBackend
from tests.support.remembering_backend import RememberingBackend
from tests.support.tiny import ARGMAX, PAGE, SPEC, open_tiny


def slots_free(engine: Engine) -> bool:
    return engine.calls.slots.free == engine._device.cache.token_slots


async def settled(engine: Engine) -> None:
    """Until nothing is on the device any more."""
    while engine._flights or engine.calls.prepared:
        await asyncio.sleep(0.001)


def test_a_decoding_program_finds_its_passes_prepared() -> None:
    async def test() -> None:
        async with engine_on(ReferenceBackend()) as engine:
            space = engine.open_space("decode", 0)
            assert await greedy(space, [3, 1, 4], 12) == expected([3, 1, 4], 12)
            # The first pass is a prompt and the second shows the habit; the ten after it are foreseen.
            assert (engine.calls.ahead.hits, space.usage.predicted, engine.calls.ahead.misses) == (10, 10, 0)
            assert space.usage.passes == 12
            space.close()
            await settled(engine)
            assert nothing_held(engine)
            assert slots_free(engine)

    run(test)


def test_depth_zero_prepares_nothing() -> None:
    async def test() -> None:
        async with engine_on(ReferenceBackend(), speculation_depth=0) as engine:
            assert await greedy(engine.open_space("plain", 0), [3, 1, 4], 6) == expected([3, 1, 4], 6)
            assert engine.calls.ahead.hits == engine.calls.ahead.misses == 0
            assert slots_free(engine)

    run(test)


def test_a_program_that_goes_another_way_gets_its_own_answer_and_is_distrusted() -> None:
    async def test() -> None:
        async with engine_on(ReferenceBackend()) as engine:
            space = engine.open_space("contrary", 0)
            context = space.create_working_set(64)
            tokens = [3]
            await next_token(space, context, tokens, 0)
            for place in range(1, 9):
                tokens.append(place * 5 % 64)
                assert [await next_token(space, context, tokens[-1:], place)] == expected(tokens, 1)
            assert engine.calls.ahead.hits == 0
            assert engine.calls.ahead.misses == space.usage.mispredicted == 1
            space.close()
            await settled(engine)
            assert nothing_held(engine)
            assert slots_free(engine)

    run(test)


def test_a_mask_after_the_prediction_is_obeyed() -> None:
    async def answers(depth: int) -> list[int]:
        async with engine_on(ReferenceBackend(), speculation_depth=depth) as engine:
            space = engine.open_space("masked", 0)
            context = space.create_working_set(64)
            found = [await next_token(space, context, [3, 1, 4, 1, 5], 0)]
            for place in range(5, 20):
                found.append(await next_token(space, context, found[-1:], place))
                if place % 3 == 0:
                    space.hide(context, place - 4, (True, True))
            return found

    async def test() -> None:
        assert await answers(1) == await answers(0)

    run(test)


async def wander(engine: Engine, seed: int) -> list[Any]:
    """A random program: decodes mostly, and sometimes forks, rewinds, deviates, masks, discards or drops."""
    rng = random.Random(seed)
    space = engine.open_space(f"wanderer {seed}", seed)
    log: list[Any] = []
    contexts: list[tuple[int, int, int]] = []
    preset = sample(temperature=1.5, top_k=20)
    for _ in range(40):
        if not contexts or (len(contexts) < 3 and rng.random() < 0.1):
            context = space.create_working_set(48)
            log.append(await next_token(space, context, [rng.randrange(64) for _ in range(rng.randrange(1, 12))], 0))
            contexts.append((context, 12, log[-1]))
            continue
        which = rng.randrange(len(contexts))
        context, place, last = contexts.pop(which)
        what = rng.random()
        if place >= 47 or what < 0.06:
            space.drop(context)
            continue
        if what < 0.14:
            contexts.append((space.fork(context), place, last))
        elif what < 0.2:
            place = max(place - rng.randrange(1, 6), 0)
        elif what < 0.26:
            last = rng.randrange(64)
        elif what < 0.3:
            space.hide(context, rng.randrange(place), (True,))
        wire, parameters = (preset.wire, preset.parameters) if seed % 2 else (ARGMAX, ())
        call = ForwardCall(context, (last,), place, place + 1, (0,), wire, parameters)
        (best,) = await space.submit(call)
        log.append(int(best.data[0]))
        contexts.append((context, place + 1, log[-1]))
        if rng.random() < 0.2:
            await asyncio.sleep(0)
    space.close()
    return log


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_answer_the_same_with_and_without(seed: int) -> None:
    async def logs(depth: int, together: bool, **settings: Any) -> list[list[Any]]:
        async with engine_on(ReferenceBackend(), speculation_depth=depth, **settings) as engine:
            seeds = range(seed * 4, seed * 4 + 4)
            if together:
                found = list(await asyncio.gather(*(wander(engine, s) for s in seeds)))
            else:
                found = [await wander(engine, s) for s in seeds]
            await settled(engine)
            assert nothing_held(engine)
            assert slots_free(engine)
            assert bool(engine.calls.ahead.hits) == bool(depth)
            return found

    async def test() -> None:
        plain = await logs(0, together=False)
        assert await logs(1, together=False) == plain
        assert await logs(1, together=True) == plain
        assert await logs(1, together=True, kv_memory=24 * PAGE_BYTES, sequences=2) == plain

    run(test)


def test_a_device_lost_under_a_prepared_pass_reaches_whoever_asks_and_leaks_nothing() -> None:
    async def test() -> None:
        backend = ReferenceBackend()
        async with engine_on(backend) as engine:
            space = engine.open_space("lost", 0)
            context = space.create_working_set(32)
            first = await next_token(space, context, [3], 0)
            second = await next_token(space, context, [first], 1)
            await settled(engine)
            backend.fail_next = DeviceLost("the device went away")
            third = await next_token(space, context, [second], 2)

            async def go_on(token: int) -> None:
                for place in range(3, 6):
                    token = await next_token(space, context, [token], place)

            with pytest.raises(DeviceLost):
                await go_on(third)
            other = engine.open_space("other", 0)
            assert await greedy(other, [1], 3) == expected([1], 3)
            for ended in (space, other):
                ended.close()
            await settled(engine)
            assert nothing_held(engine)
            assert slots_free(engine)

    run(test)


def test_a_prepared_pass_goes_with_the_one_it_would_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pie_edge.control.engine.STEPS_IN_FLIGHT", 1)

    async def test() -> None:
        backend = ReferenceBackend()
        async with engine_on(backend) as engine:
            space = engine.open_space("lost", 0)
            context = space.create_working_set(32)
            backend.fail_next = DeviceLost("the device went away")
            with pytest.raises(DeviceLost):
                await next_token(space, context, [3], 0)
            assert engine.calls.ahead.misses == 1
            assert await greedy(space, [1], 3) == expected([1], 3)
            space.close()
            await settled(engine)
            assert nothing_held(engine)
            assert slots_free(engine)

    run(test)


def test_spaces_decoding_side_by_side_are_foreseen_together() -> None:
    async def test() -> None:
        async with engine_on(ReferenceBackend()) as engine:
            spaces: list[Space] = [engine.open_space(f"s{i}", 0) for i in range(6)]
            answers = await asyncio.gather(*(greedy(s, [i + 1], 8) for i, s in enumerate(spaces)))
            assert answers == [expected([i + 1], 8) for i in range(6)]
            assert engine.calls.ahead.hits >= 6 * 5
            assert engine.statistics.largest_step == 6

    run(test)


def test_nothing_is_foreseen_for_a_context_that_was_dropped_before_its_pass_ran() -> None:
    async def test() -> None:
        async with engine_on(ReferenceBackend()) as engine:
            space = engine.open_space("dropped", 0)
            context = space.create_working_set(16)
            answer = space.submit(ForwardCall(context, (3,), 0, 1, (0,), ARGMAX))
            space.drop(context)
            assert int((await answer)[0].data[0]) == expected([3], 1)[0]
            await settled(engine)
            assert slots_free(engine)
            assert nothing_held(engine)

    run(test)


def test_a_pass_that_is_taken_up_while_its_step_waits_for_a_kernel_still_hands_on_its_token() -> None:
    async def decode(space: Space, count: int) -> list[int]:
        context, tokens = space.create_working_set(count + 1), [3]
        for place in range(count):
            (best,) = await space.submit(ForwardCall(context, (tokens[-1],), place, place + 1, (0,), ARGMAX))
            tokens.append(int(best.data[0]))
            for _ in range(8):  # by the time it asks, its next pass is in a step
                await asyncio.sleep(0)
        return tokens[1:]

    async def test() -> None:
        taken_up = 0
        found = []
        for depth in (0, 1):
            engine = await open_tiny(RememberingBackend(SPEC.vocabulary, PAGE), speculation_depth=depth)
            compiled = engine._device._epilogue

            async def compile_slowly(group: Group, compiled: Any = compiled) -> Any:
                nonlocal taken_up
                (work,) = (readout.part.work for readout in group.readouts)
                foreseen = not work.confirmed
                for _ in range(20):
                    await asyncio.sleep(0)
                taken_up += foreseen and work.confirmed
                return await compiled(group)

            engine._device._epilogue = compile_slowly  # type: ignore[method-assign]
            found.append(await decode(engine.open_space("one", 0), 24))
            await engine.close()
        assert found[0] == found[1]
        assert taken_up

    run(test)
