"""One model on two devices: where inferlets go, what they may hand each other, and what is left when a device is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pie_edge.control.metrics import metrics
from pie_edge.control.queue import ForwardCall
from pie_edge.control.replicas import WORTH, Replicas, follow
from pie_edge.control.space import Space
from pie_edge.errors import DeviceLost, InvalidHandle
from tests.backend.test_engine import expected, greedy, next_token, nothing_held, run
from tests.backend.test_handles import autoregress
from tests.support import tiny_hybrid
from tests.support.oracle_run import log_probabilities
from tests.support.reference_backend import ReferenceBackend
from tests.support.tiny import PAGE, open_tiny

PROMPT = [token % 60 for token in range(21)]


def backends(**options: Any) -> list[ReferenceBackend]:
    return [ReferenceBackend(device=f"card {number}", **options) for number in range(2)]


@asynccontextmanager
async def replicas_on(
    devices: list[ReferenceBackend], opening: Callable[..., Any] = open_tiny, **settings: Any
) -> AsyncIterator[Replicas]:
    """At the end no engine may hold a page, or have a space."""
    replicas = Replicas([await opening(device, **settings) for device in devices])
    try:
        yield replicas
        for engine in replicas.engines:
            assert nothing_held(engine) and not engine.spaces
        assert not replicas._unsettled
    finally:
        await replicas.close()


async def placed(replicas: Replicas, number: int, prompt: list[int] = PROMPT) -> Space:
    """A space that has computed something on this engine."""
    space = replicas.open_space(f"on {number}", 0)
    space.settle(home=replicas.engines[number])
    await greedy(space, prompt, 1)
    return space


def test_both_devices_give_the_tokens_of_one_and_share_the_work() -> None:
    async def test() -> None:
        async with replicas_on(backends()) as replicas:
            spaces = [replicas.open_space(f"s{number}", 0) for number in range(4)]
            prompts = [[number, 7, 9] for number in range(4)]
            answers = await asyncio.gather(*(greedy(s, p, 5) for s, p in zip(spaces, prompts, strict=True)))
            assert answers == [expected(prompt, 5) for prompt in prompts]
            assert [len(engine.spaces) for engine in replicas.engines] == [2, 2]
            assert all(engine.statistics.steps for engine in replicas.engines)
            for space in spaces:
                space.close()

    run(test)


def test_an_inferlet_goes_to_where_its_beginning_is_and_computes_only_the_rest() -> None:
    async def test() -> None:
        async with replicas_on(backends()) as replicas:
            (await placed(replicas, 1)).close()
            later = replicas.open_space("later", 0)
            assert await greedy(later, [*PROMPT, 50], 2) == expected([*PROMPT, 50], 2)
            assert later.engine is replicas.engines[1]
            assert later.usage.cached_tokens == 2 * PAGE
            later.close()

    run(test)


def test_a_short_common_beginning_is_not_worth_a_queue_and_a_long_one_is() -> None:
    async def test() -> None:
        long = [token % 60 for token in range(2 * WORTH + PAGE)]
        async with replicas_on(backends()) as replicas:
            busy = [await placed(replicas, 1, long)]
            short = replicas.open_space("short", 0)
            await greedy(short, long[: 2 * PAGE], 1)
            assert short.engine is replicas.engines[0]
            for number in (50, 51):
                busy.append(replicas.open_space("long", 0))
                await greedy(busy[-1], [*long, number], 1)
            # The second one finds two more inferlets there than on the other device.
            assert [space.engine for space in busy] == [replicas.engines[1]] * 3
            for space in (short, *busy):
                space.close()

    run(test)


def test_an_adapter_s_keys_are_no_beginning_of_another_s() -> None:
    from tests.support.tiny import ADAPTERS, random_adapters

    async def test() -> None:
        opening: Any = lambda device: open_tiny(device, adapters=random_adapters())  # noqa: E731
        async with replicas_on(backends(), opening) as replicas:
            poet = replicas.open_space("poet", 0)
            poet.settle(home=replicas.engines[1])
            context = poet.create_working_set(len(PROMPT))
            await poet.submit(ForwardCall(context, tuple(PROMPT), 0, len(PROMPT), adapter=ADAPTERS[0]))
            poet.close()
            for adapter, home in ((ADAPTERS[0], 1), (ADAPTERS[1], 0)):
                space = replicas.open_space("next", 0)
                context = space.create_working_set(len(PROMPT))
                await space.submit(ForwardCall(context, tuple(PROMPT), 0, len(PROMPT), adapter=adapter))
                assert space.engine is replicas.engines[home]
                space.close()
            odd = replicas.open_space("odd", 0)
            context = odd.create_working_set(4)
            with pytest.raises(InvalidHandle, match="names the adapter 'odd'"):
                odd.submit(ForwardCall(context, (1,), 0, 1, adapter="odd"))
            odd.close()

    run(test)


def test_children_go_to_their_parent_and_what_it_shared_is_found_there() -> None:
    async def test() -> None:
        async with replicas_on(backends()) as replicas:
            parent = await placed(replicas, 1)
            context = parent.create_working_set(len(PROMPT) + 8)
            await next_token(parent, context, PROMPT, 0)
            parent.share(context, "left")
            child = replicas.open_space("child", 0, parent)
            assert child.engine is replicas.engines[1]
            found = child.adopt("left")
            assert found is not None
            assert [await next_token(child, found, [50], len(PROMPT))] == expected([*PROMPT, 50], 1)
            stranger = replicas.open_space("stranger", 0)
            copy = stranger.adopt("left")
            assert copy is not None and stranger.engine is replicas.engines[1]
            assert stranger.unshare("left") and stranger.adopt("left") is None
            for space in (parent, child, stranger):
                space.close()

    run(test)


def test_what_is_on_the_other_device_is_refused_by_name_once_an_inferlet_has_pages() -> None:
    async def test() -> None:
        async with replicas_on(backends()) as replicas:
            here, there = await placed(replicas, 0), await placed(replicas, 1)
            context = there.create_working_set(8)
            await next_token(there, context, [1, 2, 3], 0)
            there.share(context, "theirs")
            handles = replicas.handles(there, 8)
            handles.export_pages(handles.allocate_pages(1), "pages")
            mine = replicas.handles(here, 8)
            for take in (lambda: here.adopt("theirs"), lambda: mine.import_pages("pages")):
                with pytest.raises(InvalidHandle, match="takes what is on card 1, and has its own pages on card 0"):
                    take()
            empty = here.create_working_set(8)
            with pytest.raises(InvalidHandle, match="'theirs', which is taken"):
                here.share(empty, "theirs")
            with pytest.raises(InvalidHandle, match="'pages', which is taken"):
                mine.export_pages([], "pages")
            fresh = replicas.open_space("fresh", 0)
            assert len(replicas.handles(fresh, 8).import_pages("pages")) == 1
            assert fresh.engine is replicas.engines[1]
            mine.withdraw("pages")
            here.unshare("theirs")
            for space in (here, there, fresh):
                space.close()

    run(test)


def test_single_pages_go_to_the_device_that_has_less_to_do() -> None:
    async def test() -> None:
        async with replicas_on(backends()) as replicas:
            busy = await placed(replicas, 0)
            space = replicas.open_space("level1", 0)
            assert await autoregress(replicas.handles(space, 8), [3, 1, 4], 3) == expected([3, 1, 4], 3)
            assert space.engine is replicas.engines[1]
            for one in (busy, space):
                one.close()

    run(test)


def test_a_saved_context_goes_on_on_any_device() -> None:
    async def test() -> None:
        async with replicas_on(backends()) as replicas:
            saver = await placed(replicas, 1)
            context = saver.create_working_set(len(PROMPT))
            await next_token(saver, context, PROMPT, 0)
            content = await replicas.save_context(saver, context, len(PROMPT))
            for home in replicas.engines:
                loader = replicas.open_space("loader", 0)
                loader.settle(home=home)
                loaded = loader.create_working_set(0)
                replicas.load_context(loader, loaded, content)
                loader.reserve(loaded, 1)
                assert [await next_token(loader, loaded, [50], len(PROMPT))] == expected([*PROMPT, 50], 1)
                loader.close()
            saver.close()

    run(test)


def test_recurrent_state_is_taken_where_the_first_pass_goes() -> None:
    async def test() -> None:
        async with replicas_on(backends(), tiny_hybrid.open_hybrid) as replicas:
            other = replicas.open_space("other", 0)
            assert len(await greedy(other, [1, 2, 3], 2)) == 2
            space = replicas.open_space("space", 0)
            context = space.create_working_set(24)
            fork = space.fork(context)
            rows = log_probabilities(tiny_hybrid.loaded(), PROMPT)
            for one in (context, fork):
                assert await next_token(space, one, PROMPT, 0) == int(rows[-1].argmax())
            assert space.engine is replicas.engines[1]
            pools = [engine.slots for engine in replicas.engines]
            assert all(pool is not None and pool.free < pool.total for pool in pools)
            for one in (other, space):
                one.close()
            assert all(pool is not None and pool.free == pool.total for pool in pools)

    run(test)


@pytest.mark.parametrize("sticky", [True, False])
def test_a_lost_device_takes_its_own_inferlets_with_it_and_no_others(sticky: bool) -> None:
    async def test() -> None:
        devices, heard = backends(sticky=sticky), []
        async with replicas_on(devices) as replicas:
            for engine in replicas.engines:
                engine.on_lost = lambda: heard.append(replicas.lost)
            here, there = await placed(replicas, 0), await placed(replicas, 1)
            left = there.create_working_set(8)
            await next_token(there, left, [1, 2, 3], 0)
            there.share(left, "left")
            devices[1].lost = DeviceLost("card 1 fell off the bus")
            # One that can be opened again is given up when that was in vain twice.
            for _ in range(1 if sticky else 5):
                with pytest.raises(DeviceLost, match="fell off the bus"):
                    await greedy(there, [4, 4], 1)
            with pytest.raises(DeviceLost, match="is on card 1, which is lost: card 1 fell off"):
                await greedy(there, [4, 4], 1)
            assert heard == [""] and not replicas.lost
            assert await greedy(here, [9, 2], 4) == expected([9, 2], 4)
            # What was cached there is no reason to go there, and what was shared there is gone.
            later = replicas.open_space("later", 0)
            assert later.adopt("left") is None
            assert await greedy(later, PROMPT, 2) == expected(PROMPT, 2)
            assert later.engine is replicas.engines[0]
            for space in (here, there, later):
                space.close()

    run(test)


def test_when_all_devices_are_lost_it_says_of_each_why() -> None:
    async def test() -> None:
        devices = backends(sticky=True)
        async with replicas_on(devices) as replicas:
            spaces = [await placed(replicas, number) for number in range(2)]
            for number, space in enumerate(spaces):
                devices[number].lost = DeviceLost(f"fault {number}")
                with pytest.raises(DeviceLost):
                    await greedy(space, [4, 4], 1)
                space.close()
            assert replicas.lost == "fault 0; fault 1"
            late = replicas.open_space("late", 0)
            with pytest.raises(DeviceLost, match="tiny is on 2 devices, and all are lost: fault 0; fault 1"):
                await greedy(late, [1], 1)
            late.close()

    run(test)


def test_figures_are_sums_with_each_device_s_own_beside_them() -> None:
    async def test() -> None:
        devices = backends(sticky=True)
        async with replicas_on(devices) as replicas:
            spaces = [await placed(replicas, number) for number in (0, 0, 1)]
            found = metrics(replicas.engines)
            assert [device["name"] for device in found["devices"]] == ["card 0", "card 1"]
            assert [device["gauges"]["spaces"] for device in found["devices"]] == [2, 1]
            assert found["counters"]["read_rows"] == 3 and found["gauges"]["spaces"] == 3
            assert found["gauges"]["page_tokens"] == PAGE
            assert sum(found["histograms"]["step_rows"]["counts"]) == found["counters"]["steps"]
            devices[0].lost = DeviceLost("gone")
            with pytest.raises(DeviceLost):
                await greedy(spaces[0], [4, 4], 1)
            assert [device["gauges"]["serves"] for device in metrics(replicas.engines)["devices"]] == [0.0, 1.0]
            for space in spaces:
                space.close()

    run(test)


def test_a_timeline_has_tracks_of_each_device() -> None:
    seen: set[str] = set()

    class Sink:
        def span(self, track: str, *_: Any, **__: Any) -> None:
            seen.add(track)

    async def test() -> None:
        async with replicas_on(backends()) as replicas:
            follow(replicas.engines, Sink())
            for space in [await placed(replicas, number) for number in range(2)]:
                space.close()

    run(test)
    assert {"device 0", "device 1", "control 0", "control 1"} <= seen
