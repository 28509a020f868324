"""Values that go from pass to pass on the device: time changes, never a token."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import pytest

from benchmarks.null_backend import Ran
from pie_edge.backend import BytesLike
from pie_edge.control.engine import Engine
from pie_edge.control.observation import Observation
from pie_edge.control.queue import ForwardCall, Next, OutputOf
from pie_edge.control.space import Space
from pie_edge.sampling.presets import sample
from tests.backend.taking import LOGITS, ahead, ended, summing, wire
from tests.backend.test_engine import PAGE_BYTES, engine_on, expected, greedy, run
from tests.support.counting_backend import CountingBackend
from tests.support.counting_backend import greedy as counted
from tests.support.reference_backend import ReferenceBackend
from tests.support.tiny import ARGMAX, PAGE, SPEC, open_tiny

T = TypeVar("T")


@pytest.mark.parametrize("depth", [0, 1])
def test_tokens_are_those_of_a_program_that_awaits_each(depth: int) -> None:
    async def test() -> None:
        async with engine_on(ReferenceBackend(), speculation_depth=depth) as engine:
            spaces = [engine.open_space(f"s{i}", 0) for i in range(5)]
            assert await ahead(spaces[0], [3, 1, 4], 12) == expected([3, 1, 4], 12)
            together = await asyncio.gather(*(ahead(space, [i + 1] * 9, 9) for i, space in enumerate(spaces)))
            assert together == [expected([i + 1] * 9, 9) for i in range(5)]
            assert engine.statistics.largest_step > 1
            await ended(engine, *spaces)

    run(test)


@pytest.mark.parametrize("depth", [0, 1])
def test_draws_are_those_of_a_program_that_awaits_each(depth: int) -> None:
    preset = sample(temperature=1.5, top_k=20)
    call = {"epilogue": preset.wire, "parameters": preset.parameters}

    async def awaited(space: Space) -> list[int]:
        context = space.create_working_set(16)
        tokens = [5]
        for place in range(10):
            (drawn,) = await space.submit(ForwardCall(context, tuple(tokens[-1:]), place, place + 1, (0,), **call))
            tokens.append(int(drawn.data[0]))
        return tokens[1:]

    async def test() -> None:
        async with engine_on(ReferenceBackend(), speculation_depth=depth) as engine:
            wanted = [await awaited(engine.open_space("awaits", seed)) for seed in range(4)]
            spaces = [engine.open_space("ahead", seed) for seed in range(4)]
            assert await ahead(spaces[0], [5], 10, call) == wanted[0]
            again = [engine.open_space("again", seed) for seed in range(4)]
            assert await asyncio.gather(*(ahead(space, [5], 10, call) for space in again)) == wanted
            assert len({tuple(one) for one in wanted}) == 4

    run(test)


class Stepped(CountingBackend):
    """A step ends when the test lets it. ``under_way`` has how many there were on the device each time."""

    def __init__(self) -> None:
        super().__init__(SPEC.vocabulary, PAGE)
        self.under_way: list[int] = []
        self._ends: list[asyncio.Event] = []
        """Of each step."""
        self._ended = 0
        self._step_of: WeakKeyDictionary[Ran, asyncio.Event] = WeakKeyDictionary()

    def run(self, executable: Any, inputs: Mapping[str, BytesLike]) -> Ran:
        if "step" in inputs:
            self._ends.append(asyncio.Event())
        return self._noted(super().run(executable, inputs))

    def download(self, spans: Sequence[tuple[Any, int, int]]) -> Ran:
        return self._noted(super().download(spans))

    def _noted(self, ran: Ran) -> Ran:
        self._step_of[ran] = self._ends[-1]
        return ran

    async def read(self, ticket: Any) -> Mapping[str, memoryview]:
        await self._step_of[ticket].wait()
        return await super().read(ticket)

    async def drive(self, program: Awaitable[T]) -> T:
        """Whenever nothing happens any more, the oldest step ends."""
        task = asyncio.ensure_future(program)
        while not task.done():
            for _ in range(40):
                await asyncio.sleep(0)
            if self._ended < len(self._ends):
                self.under_way.append(len(self._ends) - self._ended)
                self._ends[self._ended].set()
                self._ended += 1
        return task.result()


@asynccontextmanager
async def stepped(**settings: Any) -> AsyncIterator[tuple[Engine, Stepped]]:
    backend = Stepped()
    engine = await open_tiny(backend, **settings)
    try:
        yield engine, backend
    finally:
        await engine.close()


def test_two_passes_of_one_program_are_under_way_at_once() -> None:
    async def under_way(program: Any) -> list[int]:
        async with stepped(speculation_depth=0) as (engine, backend):
            answer = await backend.drive(program(engine.open_space("one", 0), [7, 8], 10))
            assert answer == counted([7, 8], 10, SPEC.vocabulary)
            return backend.under_way

    async def test() -> None:
        assert await under_way(greedy) == [1] * 10
        assert await under_way(ahead) == [2] * 9 + [1]

    run(test)


def test_contexts_side_by_side_run_ahead_in_shared_steps() -> None:
    async def test() -> None:
        async with stepped(speculation_depth=0) as (engine, backend):
            space, prompts = engine.open_space("three", 0), [[5], [6], [7]]
            answers = backend.drive(
                asyncio.gather(*(ahead(space, prompt, 8, first=100 * i) for i, prompt in enumerate(prompts)))
            )
            assert await answers == [counted(prompt, 8, SPEC.vocabulary) for prompt in prompts]
            assert backend.steps == [3] * 8
            assert backend.under_way == [2] * 7 + [1]

    run(test)


def test_a_pass_takes_a_token_of_another_context() -> None:
    async def test() -> None:
        async with engine_on(ReferenceBackend()) as engine:
            space = engine.open_space("two", 0)
            one, two = space.create_working_set(8), space.create_working_set(8)
            first = space.submit(ForwardCall(one, (3, 1), 0, 2, (1,), ARGMAX, name=1))
            embeds = ((0, OutputOf(1, 0)), (1, OutputOf(1, 0)))
            (second,) = await space.submit(ForwardCall(two, (9, 2), 0, 4, (3,), ARGMAX, embeds=embeds))
            token = int((await first)[0].data[0])
            assert [token] == expected([3, 1], 1)
            assert [int(second.data[0])] == expected([token, 9, token, 2], 1)
            await ended(engine, space)

    run(test)


def test_a_row_of_tokens_is_embedded_at_once() -> None:
    top = wire(LOGITS, {"op": "top_k", "in": [0], "attrs": {"k": 4}}, outputs=[[1, 1], 1])

    async def test() -> None:
        async with engine_on(ReferenceBackend()) as engine:
            space = engine.open_space("row", 0)
            context = space.create_working_set(16)
            first = space.submit(ForwardCall(context, (3, 1), 0, 2, (1,), top, name=1))
            call = ForwardCall(context, (), 2, 6, (3,), ARGMAX, embeds=((0, OutputOf(1, 0)),))
            (second,) = await space.submit(call)
            tokens = [int(token) for token in (await first)[0].data]
            assert [int(second.data[0])] == expected([3, 1, *tokens], 1)
            await ended(engine, space)

    run(test)


def test_a_state_of_the_program_stays_on_the_device() -> None:
    async def test() -> None:
        async with engine_on(ReferenceBackend(), speculation_depth=0) as engine:
            spaces = [engine.open_space(f"s{i}", i) for i in range(4)]
            wanted = await summing(spaces[0], 6, on_device=False)
            assert wanted[0] == expected([5], 6)
            found = [await summing(spaces[1], 6, on_device=True)]
            found += await asyncio.gather(*(summing(space, 6, on_device=True) for space in spaces[2:]))
            assert [tokens for tokens, _ in found] == [wanted[0]] * 3
            assert [total for _, total in found] == pytest.approx([wanted[1]] * 3, rel=1e-5)
            await ended(engine, *spaces)

    run(test)


def word(data: bytes) -> int:
    (found,) = struct.unpack("<I", data)
    return int(found)


def test_values_are_taken_in_the_order_they_were_put_in_whoever_runs_first() -> None:
    async def test() -> None:
        async with engine_on(ReferenceBackend()) as engine:
            space = engine.open_space("order", 0)
            queue = space.channels.create((), "u32", 4)
            for tokens in ([7] * 40, [8], [9, 9]):
                context, count = space.create_working_set(64), len(tokens)
                space.submit(ForwardCall(context, tuple(tokens), 0, count, (count - 1,), ARGMAX, puts=((0, queue),)))
            space.channels.put(queue, "u32", struct.pack("<I", 5))
            first = space.channels.read(queue)[0]
            found = [word(await space.channels.take(queue)[0]) for _ in range(4)]
            assert found == [*expected([7] * 40, 1), *expected([8], 1), *expected([9, 9], 1), 5]
            assert word(await first) == found[0]
            await ended(engine, space)

    run(test)


def test_setting_replaces_the_next_value_for_those_who_take_it_later() -> None:
    async def test() -> None:
        async with engine_on(ReferenceBackend()) as engine:
            space = engine.open_space("set", 0)
            context, channel = space.create_working_set(16), space.channels.create((), "u32", 1)
            first = space.submit(ForwardCall(context, (3,), 0, 1, (0,), ARGMAX, puts=((0, channel),)))
            embeds = ((0, Next(channel, stays=True)),)
            second = space.submit(ForwardCall(context, (), 1, 2, (0,), ARGMAX, embeds=embeds))
            space.channels.set(channel, "u32", struct.pack("<I", 9))
            third = space.submit(ForwardCall(context, (), 2, 3, (0,), ARGMAX, embeds=embeds))
            tokens = [3, int((await first)[0].data[0])]
            assert [int((await second)[0].data[0])] == expected(tokens, 1)
            assert [int((await third)[0].data[0])] == expected([*tokens, 9], 1)
            assert word(await space.channels.take(channel)[0]) == 9
            await ended(engine, space)

    run(test)


def test_what_a_pass_observes_comes_after_what_it_returns() -> None:
    both = wire(
        LOGITS, {"op": "reduce_max", "in": [0]}, {"op": "reduce_argmax", "in": [0]}, outputs=[2, 1], unreturned=1
    )

    async def test() -> None:
        async with engine_on(ReferenceBackend()) as engine:
            space = engine.open_space("observes", 0)
            context, channel = space.create_working_set(16), space.channels.create((), "f32", 1)
            observed = Observation((0, 1), (0, 2))
            call = ForwardCall(context, (3, 1, 4), 0, 3, (2,), both, puts=((1, channel),), observed=observed)
            token, masses = await space.submit(call)
            assert [int(token.data[0])] == expected([3, 1, 4], 1)
            assert masses.shape == (2, 1)
            assert list(masses.data) == pytest.approx([1.0, 1.0])
            assert len(await space.channels.take(channel)[0]) == 4
            await ended(engine, space)

    run(test)


def test_without_room_on_the_device_takers_wait_for_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pie_edge.control.needs.VALUE_WORDS", -7)

    async def test() -> None:
        async with engine_on(ReferenceBackend(), sequences=8) as engine:
            assert engine.calls.slots.total == 1
            spaces = [engine.open_space(f"s{i}", i) for i in range(3)]
            answers = await asyncio.gather(*(ahead(space, [i + 1] * 4, 6) for i, space in enumerate(spaces)))
            assert answers == [expected([i + 1] * 4, 6) for i in range(3)]
            taken, awaited = [
                await summing(space, 4, on_device=taking) for space, taking in zip(spaces, (True, False), strict=False)
            ]
            assert taken[0] == awaited[0]
            assert taken[1] == pytest.approx(awaited[1], rel=1e-5)
            await ended(engine, *spaces)

    run(test)


def test_a_context_that_only_waits_gives_its_pages_to_the_pass_it_waits_for() -> None:
    """Each of the two fits the cache alone: the program goes on as it would if it awaited the first before the second."""

    async def test() -> None:
        async with engine_on(ReferenceBackend(), kv_memory=9 * PAGE_BYTES) as engine:
            assert engine.pool.total == 9
            space = engine.open_space("two", 0)
            one, two = space.create_working_set(64), space.create_working_set(64)
            tokens = tuple(range(40))
            await space.submit(ForwardCall(two, tokens, 0, 40))
            first = space.submit(ForwardCall(one, tokens[::-1], 0, 40, (39,), ARGMAX, name=1))
            second = space.submit(ForwardCall(two, (), 40, 41, (0,), ARGMAX, embeds=((0, OutputOf(1, 0)),)))
            token = int((await first)[0].data[0])
            assert [token] == expected(list(tokens[::-1]), 1)
            assert [int((await second)[0].data[0])] == expected([*tokens, token], 1)
            assert space.usage.parked_pages
            await ended(engine, space)

    run(test)


def test_a_long_prompt_takes_a_token_on_its_way_beside_others_that_decode() -> None:
    async def test() -> None:
        async with engine_on(ReferenceBackend(), rows=16, shared_rows=8) as engine:
            space, other = engine.open_space("long", 0), engine.open_space("decodes", 0)
            one, two = space.create_working_set(64), space.create_working_set(96)
            tokens = tuple(range(60))
            decoding = asyncio.ensure_future(ahead(other, [3, 1], 20))
            first = space.submit(ForwardCall(one, tokens[:50], 0, 50, (49,), ARGMAX, name=1))
            embeds = ((37, OutputOf(1, 0)), (60, OutputOf(1, 0)))
            (second,) = await space.submit(ForwardCall(two, tokens, 0, 62, (61,), ARGMAX, embeds=embeds))
            token = int((await first)[0].data[0])
            assert [token] == expected(list(tokens[:50]), 1)
            assert [int(second.data[0])] == expected([*tokens[:37], token, *tokens[37:], token], 1)
            assert await decoding == expected([3, 1], 20)
            await ended(engine, space, other)

    run(test)


def test_tokens_that_were_taken_make_prefixes_that_others_find() -> None:
    async def test() -> None:
        async with engine_on(ReferenceBackend()) as engine:
            one, two = engine.open_space("one", 0), engine.open_space("two", 0)
            answer = await ahead(one, [3, 1, 4], 22)
            assert answer == expected([3, 1, 4], 22)
            prompt = [3, 1, 4, *answer]
            assert await greedy(two, prompt, 3) == expected(prompt, 3)
            assert two.usage.cached_tokens == 24
            await ended(engine, one, two)

    run(test)
