"""Pages behind every layer's window: given back while their context goes on, and never missed unnoticed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from pie_edge.control.engine import Engine
from pie_edge.control.gone import Gone, part_of, without
from pie_edge.control.queue import ForwardCall
from pie_edge.control.space import Space
from pie_edge.errors import Irreversible
from pie_edge.model import gemma2, mistral, registry
from tests.backend.test_engine import PAGE_BYTES, run
from tests.support.remembering_backend import RememberingBackend, answer
from tests.support.tiny import ARGMAX, PAGE, SPEC, open_tiny

WINDOW = 20
MARGIN = PAGE


@asynccontextmanager
async def engine_on(window: int = WINDOW, **settings: Any) -> AsyncIterator[Engine]:
    backend = RememberingBackend(SPEC.vocabulary, PAGE, window)
    engine = await open_tiny(backend, spec=replace(SPEC, window=window), **settings)
    try:
        yield engine
    finally:
        await engine.close()


def token(place: int) -> int:
    return (7 * place + 3) % SPEC.vocabulary


def call(context: int, start: int, end: int, **more: Any) -> ForwardCall:
    tokens = tuple(token(place) for place in range(start, end))
    return ForwardCall(context, tokens, start, end, (end - start - 1,), ARGMAX, **more)


def right(end: int, window: int = WINDOW) -> int:
    first = max(end - window, 0) if window else 0
    return answer([(token(place), place) for place in range(first, end)], SPEC.vocabulary)


async def ask(space: Space, context: int, start: int, end: int) -> int:
    (best,) = await space.submit(call(context, start, end))
    return int(best.data[0])


def held(space: Space, context: int) -> int:
    return sum(entry.page != 0 for entry in space.find(context).entries)


def test_a_context_far_longer_than_the_pool_goes_on_in_a_few_pages() -> None:
    """250 tokens in a pool of 7 pages of 8, in one prompt and then one by one: what is released is counted."""

    async def test() -> None:
        async with engine_on(kv_memory=7 * PAGE_BYTES, rows=16) as engine:
            space = engine.open_space("long", 0)
            context = space.create_working_set(250)
            assert await ask(space, context, 0, 200) == right(200)
            for place in range(200, 250):
                assert await ask(space, context, place, place + 1) == right(place + 1)
                assert held(space, context) <= 1 + -(-(WINDOW + MARGIN) // PAGE)
            released = space.usage.released_pages
            assert released == (250 - WINDOW + 1 - MARGIN) // PAGE
            assert space.find(context).gone == [Gone(0, released * PAGE)]
            space.close()
            assert engine.pool.free + engine.prefixes.reclaimable == engine.pool.total

    run(test)


def test_where_some_layer_sees_everything_all_pages_stay() -> None:
    async def test() -> None:
        async with engine_on(window=0) as engine:
            space = engine.open_space("long", 0)
            context = space.create_working_set(120)
            assert await ask(space, context, 0, 120) == right(120, window=0)
            assert held(space, context) == 120 // PAGE
            assert space.usage.released_pages == 0

    run(test)


@pytest.mark.parametrize(("family", "name"), [(mistral, "mistral"), (gemma2, "gemma2")])
def test_only_families_whose_every_layer_has_a_window_release(family: Any, name: str, tmp_path: Any) -> None:
    """As the device reads it off the Program: Mistral's layers all have one, every other one of Gemma 2's."""
    from tests.support import family_oracle

    path = family_oracle.read(name).write(tmp_path, "safetensors")
    from pie_edge.control.device import Device
    from pie_edge.control.plan import DeviceSettings
    from pie_edge.weights.checkpoint import open_checkpoint
    from pie_edge.weights.source import weight_sources
    from tests.support.reference_backend import ReferenceBackend

    async def test() -> None:
        with open_checkpoint(path) as checkpoint:
            facts = registry.facts(checkpoint)
            spec, backend = registry.read(facts), ReferenceBackend()
            sources = weight_sources(checkpoint.tensors, family.weights(spec), backend.limits.supports)
            weights = {one: (source.target, source) for one, source in sources.items()}
            device = await Device.open(spec, family, weights, backend, DeviceSettings(rows=8), None, name)
            assert device.window == (8 if family is mistral else 0)

    run(test)


def test_going_back_by_a_page_is_always_right_and_further_is_refused_by_name() -> None:
    async def test() -> None:
        async with engine_on() as engine:
            space = engine.open_space("back", 0)
            context = space.create_working_set(256)
            reached = 0
            for end in (100, 103, 150, 151):
                assert await ask(space, context, max(reached - MARGIN, 0), end) == right(end)
                assert await ask(space, context, end - MARGIN, end) == right(end)
                reached = end
            with pytest.raises(
                Irreversible,
                match=r"back goes back to position 100 of a context whose keys up to position 99 were released: "
                r"every layer sees 20 tokens.*no more than 8 tokens, or fork",
            ):
                space.submit(call(context, 100, 101))
            assert await ask(space, context, 151, 152) == right(152)  # nothing came of it
            # From the beginning is another matter: nothing before it is needed.
            assert await ask(space, context, 0, 60) == right(60)
            assert await ask(space, context, 60, 61) == right(61)

    run(test)


def test_a_fork_keeps_what_it_holds_and_both_go_on() -> None:
    async def test() -> None:
        async with engine_on() as engine:
            space = engine.open_space("fork", 0)
            context = space.create_working_set(256)
            assert await ask(space, context, 0, 40) == right(40)
            branch = space.fork(context)
            space.share(context, "here")
            assert await ask(space, context, 40, 140) == right(140)
            assert space.usage.released_pages > 8
            assert await ask(space, branch, 36, 44) == right(44)
            found = space.adopt("here")
            assert found is not None
            assert await ask(space, found, 36, 41) == right(41)
            late = space.fork(context)
            assert await ask(space, late, 138, 141) == right(141)
            for one in (late, context):
                with pytest.raises(Irreversible, match="were released"):
                    space.submit(call(one, 60, 61))
            assert engine.shared.remove("here")

    run(test)


def test_passes_that_wait_already_find_all_that_they_see() -> None:
    """A long prompt, and behind it one that goes back: what the second one sees stays until it has run."""

    async def test() -> None:
        async with engine_on(rows=8, shared_rows=8) as engine:
            space = engine.open_space("queue", 0)
            context = space.create_working_set(256)
            spans = [(0, 120), (50, 52), (52, 200), (70, 71), (71, 73)]
            futures = [space.submit(call(context, *span)) for span in spans]
            found = [int((await future)[0].data[0]) for future in futures]
            assert found == [right(end) for _, end in spans]

    run(test)


def test_equal_prompts_still_share_what_is_there() -> None:
    async def test() -> None:
        async with engine_on() as engine:
            first, second = engine.open_space("first", 0), engine.open_space("second", 0)
            assert await ask(first, first.create_working_set(128), 0, 128) == right(128)
            assert await ask(second, second.create_working_set(128), 0, 128) == right(128)
            assert second.usage.cached_tokens > 100
            assert second.usage.released_pages > 10

    run(test)


def test_a_snapshot_goes_on_where_it_was_saved_and_knows_what_is_gone() -> None:
    async def test() -> None:
        async with engine_on() as engine:
            space = engine.open_space("saves", 0)
            context = space.create_working_set(256)
            await ask(space, context, 0, 100)
            saved = space.submit(call(context, 100, 130)), engine.save_context(space, context, 130)
            content = await saved[1]
            assert content.gone
            assert content.gone[0].end <= 100 - WINDOW
            assert len(content.pages) == -(-130 // PAGE)
            assert await ask(space, context, 130, 180) == right(180)
            again = space.create_working_set(256)
            engine.load_context(space, again, content)
            assert await ask(space, again, 125, 131) == right(131)
            assert await ask(space, again, 131, 190) == right(190)
            with pytest.raises(Irreversible, match="were released"):
                space.submit(call(again, 60, 61))

    run(test)


def test_what_is_gone_follows_slicing_rewriting_and_taking_out() -> None:
    gone = [Gone(0, 40), Gone(60, 80, 5)]
    assert part_of(gone, 8, 70) == [Gone(0, 32, 8), Gone(52, 62, 13)]
    assert without(gone, 10, 20) == [Gone(0, 10), Gone(20, 40), Gone(60, 80, 5)]
    assert without(gone, 0, 100) == []
    assert without(gone, 30, 70) == [Gone(0, 30), Gone(70, 80, 5)]
    assert without(gone, 16, 24, closing=True) == [Gone(0, 16), Gone(16, 32, 8), Gone(52, 72, 13)]
