"""A device that is lost and opened again holds zeros: nobody goes on from them, and what comes next is computed anew."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from pie_edge.control.engine import Engine
from pie_edge.control.handles import KvRange
from pie_edge.control.queue import ForwardCall
from pie_edge.errors import DeviceLost, InvalidHandle
from tests.backend import openers
from tests.backend.test_engine import engine_on, expected, greedy, next_token, nothing_held, run
from tests.support.reference_backend import ReferenceBackend

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4]
"""Longer than a page."""


class Losing(ReferenceBackend):
    """Its next read fails, and by then it was opened again; or that is over when the next run begins."""

    losing = False
    lost_before_run = False

    def run(self, executable: Any, inputs: Any) -> dict[str, Any]:
        if self.lost_before_run:
            self.lost_before_run = False
            self.reopen()
        return super().run(executable, inputs)

    async def read(self, ticket: dict[str, Any]) -> Any:
        if self.losing:
            self.losing = False
            self.reopen()
            raise DeviceLost("the device went away")
        return await super().read(ticket)


def reference() -> tuple[Any, Callable[[], None]]:
    backend = Losing()
    return backend, lambda: setattr(backend, "losing", True)


def metal() -> tuple[Any, Callable[[], None]]:
    backend: Any = openers.named("metal")(memory=512 << 20)

    def lose() -> None:
        def fail(*arrays: Any) -> None:
            raise RuntimeError("[malloc] Unable to allocate 4096 bytes.")

        backend._live.timeline.start = fail

    return backend, lose


async def lose_under(engine: Engine, lose: Callable[[], None]) -> None:
    """The device, by a pass of an inferlet's of its own."""
    lose()
    with pytest.raises(Exception, match="the device went away|a step asked for"):
        await greedy(engine.open_space("unlucky", 0), [7, 7], 1)


@pytest.mark.parametrize("opening", [reference, metal])
def test_contexts_from_before_are_refused_and_prompts_from_before_computed_again(
    opening: Callable[[], tuple[Any, Callable[[], None]]],
) -> None:
    async def test() -> None:
        backend, lose = await asyncio.to_thread(opening)
        async with engine_on(backend) as engine:
            held, fresh = engine.open_space("held", 0), engine.open_space("fresh", 0)
            context = held.create_working_set(64)
            empty = fresh.create_working_set(64)
            first = await next_token(held, context, PROMPT, 0)
            assert [first] == expected(PROMPT, 1)
            held.share(context, "left")
            await lose_under(engine, lose)
            for ask in (
                lambda: held.submit(ForwardCall(context, (first,), 20, 21)),
                lambda: held.create_working_set(1),
            ):
                with pytest.raises(DeviceLost, match="held had pages on .* opened again without them"):
                    ask()
            assert engine.open_space("other", 0).adopt("left") is None
            # Whoever had nothing there goes on, and equal prompts are no longer found.
            assert [await next_token(fresh, empty, PROMPT, 0)] == expected(PROMPT, 1)
            assert await greedy(engine.open_space("again", 0), PROMPT, 4) == expected(PROMPT, 4)
            for space in list(engine.spaces):
                space.close()
            assert nothing_held(engine)

    run(test)


def test_calls_that_wait_hear_of_it_too() -> None:
    async def test() -> None:
        backend, lose = reference()
        async with engine_on(backend) as engine:
            held = engine.open_space("held", 0)
            contexts = [held.create_working_set(32) for _ in range(2)]
            for context in contexts:
                await next_token(held, context, PROMPT, 0)
            lose()
            calls = [held.submit(ForwardCall(context, (1,), 20, 21)) for context in contexts]
            later = held.submit(ForwardCall(contexts[0], (2,), 21, 22))
            outcomes = await asyncio.gather(*calls, later, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [DeviceLost] * 3
            with pytest.raises(DeviceLost):
                held.find(contexts[0])
            space = engine.open_space("new", 0)
            with pytest.raises(InvalidHandle):
                space.find(contexts[0])
            assert await greedy(space, PROMPT, 2) == expected(PROMPT, 2)
            for one in list(engine.spaces):
                one.close()
            assert nothing_held(engine)

    run(test)


def test_a_step_that_was_formed_before_and_runs_after_gives_no_tokens() -> None:
    async def test() -> None:
        backend = Losing()
        async with engine_on(backend, speculation_depth=0) as engine:
            held = engine.open_space("held", 0)
            context = held.create_working_set(32)
            (first,) = expected(PROMPT, 1)
            assert await next_token(held, context, PROMPT, 0) == first
            backend.lost_before_run = True
            with pytest.raises(DeviceLost, match="were lost with the device before it ran"):
                await next_token(held, context, [first], 20)
            with pytest.raises(DeviceLost, match="held had pages on"):
                held.find(context)

    run(test)


def test_single_pages_are_refused_too() -> None:
    async def test() -> None:
        backend, lose = reference()
        async with engine_on(backend) as engine:
            held = engine.open_space("held", 0)
            handles = engine.handles(held)
            pages, embeds = handles.allocate_pages(1), handles.allocate_embeds(3)
            handles.embed_text(embeds, [3, 1, 4], [0, 1, 2])
            handles.forward(0, [], embeds, [KvRange(pages[0], 0, 3)], [])
            await handles.synchronize(0)
            await lose_under(engine, lose)
            with pytest.raises(DeviceLost, match="held had pages on"):
                held.check_open()

    run(test)
