"""A context out of the cache and into another one: the same tokens follow, and none is forwarded again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from pie_edge.control.engine import Engine
from pie_edge.control.queue import ForwardCall
from pie_edge.control.snapshot import Content
from pie_edge.control.space import Space
from pie_edge.errors import ContextOverflow, InvalidHandle, OutOfPages
from tests.backend.test_engine import (
    PAGE_BYTES,
    DictSpill,
    engine_on,
    expected,
    greedy,
    next_token,
    nothing_held,
    run,
)
from tests.support.reference_backend import ReferenceBackend
from tests.support.tiny import open_tiny

PROMPT = [token % 60 for token in range(21)]


async def saved(engine: Engine, prompt: list[int] = PROMPT) -> Content:
    space = engine.open_space("saver", 0)
    context = space.create_working_set(len(prompt) + 8)
    await next_token(space, context, prompt, 0)
    content = await engine.save_context(space, context, len(prompt))
    space.close()
    return content


async def loaded(engine: Engine, content: Content) -> tuple[Space, int]:
    space = engine.open_space("loader", 0)
    context = space.create_working_set(0)
    engine.load_context(space, context, content)
    return space, context


def test_what_follows_a_loaded_context_is_what_follows_the_saved_one() -> None:
    async def test() -> None:
        async with engine_on(ReferenceBackend()) as engine:
            content = await saved(engine)
            assert content.history == tuple(PROMPT)
            assert len(content.pages) == 3
        async with engine_on(ReferenceBackend()) as engine:
            space, context = await loaded(engine, content)
            space.reserve(context, 1)
            assert [await next_token(space, context, [50], 21)] == expected([*PROMPT, 50], 1)
            assert space.usage.forwarded_tokens == 1
            # Its pages are a prefix that others share from now on.
            other = engine.open_space("other", 0)
            assert await greedy(other, [*PROMPT, 51], 1) == expected([*PROMPT, 51], 1)
            assert other.usage.cached_tokens == 16
            space.close()
            other.close()
            assert nothing_held(engine)

    run(test)


def test_saving_waits_for_the_passes_before_it_and_not_for_those_after() -> None:
    async def test() -> None:
        async with engine_on(ReferenceBackend()) as engine:
            space = engine.open_space("saver", 0)
            context = space.create_working_set(32)
            first = asyncio.ensure_future(next_token(space, context, PROMPT, 0))
            await asyncio.sleep(0)
            saving = asyncio.ensure_future(engine.save_context(space, context, 21))
            later = asyncio.ensure_future(next_token(space, context, [7] * 21, 0))
            content = await saving
            await asyncio.gather(first, later)
            space.close()
            space, context = await loaded(engine, content)
            assert [await next_token(space, context, [50], 21)] == expected([*PROMPT, 50], 1)

    run(test)


@pytest.mark.parametrize("park_memory", [1 << 20, 0], ids=["in host memory", "on disk"])
def test_a_parked_context_is_saved_without_coming_back(park_memory: int) -> None:
    async def test() -> None:
        spill = DictSpill()
        engine = await open_tiny(ReferenceBackend(), spill=spill, kv_memory=5 * PAGE_BYTES, park_memory=park_memory)
        space = engine.open_space("saver", 0)
        context = space.create_working_set(24)
        await next_token(space, context, PROMPT, 0)
        assert await greedy(engine.open_space("other", 0), [7] * 20, 3) == expected([7] * 20, 3)
        assert space.usage.parked_pages == 3
        content = await engine.save_context(space, context, 21)
        assert space.usage.restored_pages == 0
        await engine.close()
        async with engine_on(ReferenceBackend()) as fresh:
            space, context = await loaded(fresh, content)
            assert [await next_token(space, context, [50], 21)] == expected([*PROMPT, 50], 1)

    run(test)


def test_hidden_tokens_stay_hidden_and_share_no_prefix() -> None:
    async def test() -> None:
        async with engine_on(ReferenceBackend()) as engine:
            space = engine.open_space("saver", 0)
            context = space.create_working_set(32)
            await next_token(space, context, [3, 1, 4, 1, 5, 9, 2, 6, 5], 0)
            space.hide(context, 1, (True,))
            content = await engine.save_context(space, context, 9)
            assert content.history == ()
            again = await next_token(space, context, [50], 9)
            space, context = await loaded(engine, content)
            assert await next_token(space, context, [50], 9) == again
            assert await greedy(engine.open_space("other", 0), [3, 1, 4, 1, 5, 9, 2, 6, 5], 2) == expected(
                [3, 1, 4, 1, 5, 9, 2, 6, 5], 2
            )

    run(test)


def test_an_empty_context_can_be_kept() -> None:
    async def test() -> None:
        async with engine_on(ReferenceBackend()) as engine:
            space = engine.open_space("saver", 0)
            content = await engine.save_context(space, space.create_working_set(0), 0)
            assert content == Content(0, (), (), ())
            space, context = await loaded(engine, content)
            space.reserve(context, 1)
            assert [await next_token(space, context, [5], 0)] == expected([5], 1)

    run(test)


Wrong = Callable[[Engine, Space, int, Content], Any]
WRONG: list[tuple[Wrong, type[Exception], str]] = [
    (lambda e, s, c, content: e.save_context(s, 99, 1), InvalidHandle, "no working set 99"),
    (
        lambda e, s, c, content: e.save_context(s, c, 33),
        InvalidHandle,
        "saves 33 tokens of a working set that has room for 32",
    ),
    (lambda e, s, c, content: e.save_context(s, c, -1), InvalidHandle, "saves -1 tokens"),
    (
        lambda e, s, c, content: e.save_context(s, c, 6),
        InvalidHandle,
        "saves token 5 of a working set, which no pass has written",
    ),
    (lambda e, s, c, content: e.load_context(s, 99, content), InvalidHandle, "no working set 99"),
    (lambda e, s, c, content: e.load_context(s, c, content), InvalidHandle, "isn't empty"),
    (
        lambda e, s, c, content: e.load_context(s, s.create_working_set(0), Content(300, (b"",) * 38, (0,) * 38, ())),
        ContextOverflow,
        "limit is 256",
    ),
]


@pytest.mark.parametrize(("ask", "error", "says"), WRONG)
def test_what_cannot_be_is_refused_and_changes_nothing(ask: Wrong, error: type[Exception], says: str) -> None:
    async def test() -> None:
        async with engine_on(ReferenceBackend()) as engine:
            content = await saved(engine)
            space = engine.open_space("asker", 0)
            context = space.create_working_set(32)
            await next_token(space, context, [1, 2, 3, 4, 5], 0)
            with pytest.raises(error, match=says):
                await (ask(engine, space, context, content) or asyncio.sleep(0))
            assert [await next_token(space, context, [6], 5)] == expected([1, 2, 3, 4, 5, 6], 1)
            space.close()
            assert nothing_held(engine)

    run(test)


def test_a_context_in_use_is_not_loaded_into() -> None:
    async def test() -> None:
        async with engine_on(ReferenceBackend()) as engine:
            content = await saved(engine)
            space = engine.open_space("asker", 0)
            context = space.create_working_set(32)
            pending = space.submit(ForwardCall(context, (1, 2), 0, 2))
            with pytest.raises(InvalidHandle, match="isn't empty"):
                engine.load_context(space, context, content)
            await pending

    run(test)


def test_loading_takes_host_memory_and_says_so_when_there_is_none() -> None:
    async def test() -> None:
        async with engine_on(ReferenceBackend(), park_memory=PAGE_BYTES) as engine:
            content = await saved(engine)
            with pytest.raises(OutOfPages, match="host memory has no room for a snapshot's pages"):
                await loaded(engine, content)
            for space in list(engine.spaces):
                space.close()
            assert nothing_held(engine)
            assert not engine.pool.any_parked

    run(test)
