"""Values on the device: what is refused, what fails, and what is left of it."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest

from pie_edge.control.queue import ForwardCall, Next, OutputOf
from pie_edge.errors import (
    DeviceLost,
    EpilogueError,
    InferletCancelled,
    InvalidHandle,
    NotFinite,
    PieError,
    ResourceError,
)
from tests.backend.taking import BEST, LOGITS, SUMMING, ended, wire
from tests.backend.test_engine import engine_on, expected, greedy, next_token, nothing_held, run
from tests.backend.test_run_ahead import settled, slots_free
from tests.support import tiny
from tests.support.reference_backend import ReferenceBackend
from tests.support.tiny import ARGMAX


def passes(context: int, **change: Any) -> ForwardCall:
    fields: dict[str, Any] = {"tokens": (1, 2), "start": 0, "end": 2, "rows": (1,), "epilogue": ARGMAX}
    return ForwardCall(context, **(fields | change))


ROW = wire(LOGITS, outputs=[0])
WRONG: dict[str, tuple[dict[str, Any], type[PieError], str]] = {
    "a pass that isn't there": ({"embeds": ((0, OutputOf(77, 0)),)}, InvalidHandle, "output 0 of pass 77"),
    "an output that isn't there": ({"embeds": ((0, OutputOf(1, 3)),)}, InvalidHandle, "output 3 of pass 1"),
    "logits as tokens": ({"embeds": ((0, OutputOf(2, 0)),)}, EpilogueError, r"main.py:0: .*f32\[64\]"),
    "floats of a channel as tokens": ({"embeds": ((0, Next(2)),)}, EpilogueError, r"embeds f32\[\]"),
    "a square of a channel as tokens": ({"embeds": ((0, Next(3)),)}, EpilogueError, r"embeds u32\[2, 2\]"),
    "one token more than places": ({"embeds": ((1, OutputOf(1, 0)),)}, InvalidHandle, "3 tokens for the places 0…2"),
    "a place past the tokens": ({"embeds": ((3, OutputOf(1, 0)),)}, InvalidHandle, "before token 3 of 2"),
    "an empty channel": ({"embeds": ((0, Next(1)),)}, ResourceError, "nothing more was put into it"),
    "more values than there are": (
        {"tokens": (), "embeds": ((0, Next(4)), (0, Next(4)))},
        ResourceError,
        "nothing more was put into it",
    ),
    "a channel that isn't there": ({"embeds": ((0, Next(9)),)}, InvalidHandle, "no channel 9"),
    "a full channel": ({"puts": ((0, 4),)}, ResourceError, "full with 1 values"),
    "two values for room for one": ({"puts": ((0, 1), (0, 1))}, ResourceError, "full with 1 values"),
    "a token for a channel of floats": (
        {"puts": ((0, 5),)},
        EpilogueError,
        r"test:1: .*u32\[\] into a channel of f32\[\]",
    ),
    "an output for a channel that isn't there": ({"puts": ((1, 1),)}, EpilogueError, "output 1 into a channel"),
    "a parameter of another type": (
        {"epilogue": SUMMING, "parameters": (bytes(4),), "fetches": ((0, Next(4)),)},
        EpilogueError,
        r"main.py:2: .*f32\[\] as parameter 0; .*u32\[\]",
    ),
    "a parameter that isn't there": ({"fetches": ((0, Next(4)),)}, EpilogueError, "parameter 0"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_is_refused_and_changes_nothing(case: str) -> None:
    change, error, says = WRONG[case]

    async def test() -> None:
        async with engine_on(ReferenceBackend()) as engine:
            space = engine.open_space("wrong", 0)
            context, channels = space.create_working_set(16), space.channels
            for shape, dtype in (((), "u32"), ((), "f32"), ((2, 2), "u32"), ((), "u32"), ((), "f32")):
                channels.create(shape, dtype, 1)
            channels.put(2, "f32", bytes(4))
            channels.put(3, "u32", bytes(16))
            channels.put(4, "u32", struct.pack("<I", 6))
            await space.submit(passes(context, name=1))
            await space.submit(passes(context, name=2, epilogue=ROW))
            with pytest.raises(error, match=says):
                space.submit(passes(context, **change))
            await space.submit(passes(context, tokens=(5,), embeds=((0, Next(4)),), puts=((0, 4), (0, 1))))
            assert [channels.take(number)[0].done() for number in (1, 2, 3, 4)] == [True] * 4
            await ended(engine, space)

    run(test)


def test_channels_too_large_or_too_many_are_refused() -> None:
    async def test() -> None:
        async with engine_on(ReferenceBackend()) as engine:
            space = engine.open_space("large", 0)
            for shape, capacity, says in (
                ((4097,), 1, "1 to 4,096 entries"),
                ((0,), 1, "1 to 4,096 entries"),
                ((1, 1, 1, 1, 1), 1, "4 axes"),
                ((2,), 0, "at least 1"),
                ((4096,), 17, "65,536 entries"),
            ):
                with pytest.raises(ResourceError, match=says):
                    space.channels.create(shape, "f32", capacity)
            for _ in range(1024):
                number = space.channels.create((), "f32", 1)
            with pytest.raises(ResourceError, match="1,024 channels"):
                space.channels.create((), "f32", 1)
            with pytest.raises(EpilogueError, match=r"puts 2 entries of f32 into a channel of f32\[\]; give 1"):
                space.channels.put(number, "f32", bytes(8))
            with pytest.raises(ResourceError, match="nothing more"):
                space.channels.set(number, "f32", bytes(4))
            space.channels.drop(number)
            with pytest.raises(InvalidHandle, match=f"no channel {number}"):
                space.channels.put(number, "f32", bytes(4))
            space.close()

    run(test)


@pytest.mark.parametrize("landed", [True, False])
def test_a_number_that_is_no_token_is_told_before_and_after_it_is_known(landed: bool) -> None:
    beyond = wire(LOGITS, BEST, {"op": "constant", "attrs": {"value": 64}}, {"op": "add", "in": [1, 2]}, outputs=[3])

    async def test() -> None:
        async with engine_on(ReferenceBackend()) as engine:
            space = engine.open_space("beyond", 0)
            context = space.create_working_set(32)
            first = space.submit(passes(context, name=1, epilogue=beyond))
            if landed:
                await first
            second = space.submit(
                passes(context, tokens=(), start=2, end=3, rows=(0,), embeds=((0, OutputOf(1, 0)),), name=2)
            )
            third = space.submit(passes(context, tokens=(), start=3, end=4, rows=(0,), embeds=((0, OutputOf(2, 0)),)))
            token = int((await first)[0].data[0])
            with pytest.raises(InvalidHandle, match=rf"main.py:3: beyond embeds token {token}, .* ids 0…63"):
                await second
            with pytest.raises(InvalidHandle, match=f"takes a value of a pass that failed: .*token {token}"):
                await third
            assert await next_token(space, context, [1, 2, 3], 0) == expected([1, 2, 3], 1)[0]
            await ended(engine, space)

    run(test)


@pytest.mark.parametrize("depth", [0, 1])
def test_whoever_takes_from_a_pass_that_failed_hears_of_it(depth: int) -> None:
    async def test() -> None:
        backend = ReferenceBackend()
        async with engine_on(backend, speculation_depth=depth) as engine:
            space = engine.open_space("lost", 0)
            context, other = space.create_working_set(32), space.create_working_set(32)
            channel = space.channels.create((), "u32", 1)
            backend.fail_next = DeviceLost("the device went away")
            calls = [space.submit(passes(context, name=1, puts=((0, channel),)))]
            for place in range(2, 6):
                embeds = ((0, OutputOf(place - 1, 0)),)
                calls.append(
                    space.submit(
                        passes(context, tokens=(), start=place, end=place + 1, rows=(0,), embeds=embeds, name=place)
                    )
                )
            calls.append(space.submit(passes(other, tokens=(), end=1, rows=(0,), embeds=((0, Next(channel, True)),))))
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [DeviceLost] * 6
            assert str(outcomes[4]) == "lost takes a value of a pass that failed: the device went away"
            with pytest.raises(DeviceLost, match="went away"):
                await space.channels.take(channel)[0]
            assert await greedy(space, [1, 2], 3) == expected([1, 2], 3)
            await ended(engine, space)

    run(test)


def test_whoever_takes_a_token_that_came_of_no_numbers_hears_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = tiny.random_weights()
    damaged["norm"][3] = float("nan")
    monkeypatch.setattr(tiny, "random_weights", lambda: damaged)

    async def test() -> None:
        async with engine_on(ReferenceBackend()) as engine:
            space = engine.open_space("broken", 0)
            context, other = space.create_working_set(16), space.create_working_set(16)
            calls = [space.submit(passes(context, name=1))]
            for number, taker in ((1, context), (2, other)):
                embeds = ((0, OutputOf(number, 0)),)
                start = 2 * (taker is context)
                call = passes(taker, tokens=(), start=start, end=start + 1, rows=(0,), embeds=embeds, name=number + 1)
                calls.append(space.submit(call))
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [NotFinite] * 3
            await ended(engine, space)

    run(test)


def test_a_refused_pass_is_told_to_those_who_name_it() -> None:
    async def test() -> None:
        async with engine_on(ReferenceBackend()) as engine:
            space = engine.open_space("refused", 0)
            context = space.create_working_set(32)
            with pytest.raises(InvalidHandle, match="token 99"):
                space.submit(passes(context, tokens=(1, 99), name=1))
            with pytest.raises(InvalidHandle, match="takes a value of a pass that failed: .*token 99"):
                space.submit(passes(context, tokens=(), end=1, rows=(0,), embeds=((0, OutputOf(1, 0)),)))
            space.close()

    run(test)


def test_cancelling_a_pass_that_waits_cancels_those_who_take_from_it() -> None:
    async def test() -> None:
        async with engine_on(ReferenceBackend()) as engine:
            space = engine.open_space("cancel", 0)
            context = space.create_working_set(32)
            doomed = space.submit(passes(context, name=1))
            taker = space.submit(
                passes(context, tokens=(), start=2, end=3, rows=(0,), embeds=((0, OutputOf(1, 0)),), name=2)
            )
            last = space.submit(passes(context, tokens=(), start=3, end=4, rows=(0,), embeds=((0, OutputOf(2, 0)),)))
            doomed.cancel()
            for call in (taker, last):
                with pytest.raises(
                    InferletCancelled, match="takes a value of a pass that failed: cancel: nobody waited"
                ):
                    await call
            assert await greedy(space, [1, 2], 2) == expected([1, 2], 2)
            await ended(engine, space)

    run(test)


@pytest.mark.parametrize("turns", range(8))
def test_dropping_and_closing_at_any_moment_leaves_nothing(turns: int) -> None:
    async def test() -> None:
        async with engine_on(ReferenceBackend()) as engine:
            space = engine.open_space("gone", 0)
            context, channel = space.create_working_set(32), space.channels.create((), "u32", 1)
            calls = [space.submit(passes(context, name=1, puts=((0, channel),)))]
            for place in range(2, 8):
                call = passes(context, tokens=(), start=place, end=place + 1, rows=(0,), embeds=((0, Next(channel)),))
                calls.append(space.submit(call))
                space.channels.put(channel, "u32", struct.pack("<I", place))
            waiting = space.channels.take(channel)[0]
            space.drop(context)
            space.channels.drop(channel)
            for _ in range(turns):
                await asyncio.sleep(0)
            space.close()
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(outcome) for outcome in outcomes} <= {tuple, InferletCancelled}
            assert await waiting == struct.pack("<I", 7)
            await settled(engine)
            assert nothing_held(engine)
            assert slots_free(engine)

    run(test)
