"""An inferlet that uses everything, ended at each point of its life: by a crash, by an exception, from outside.

Whatever it held and had started is gone then, and the next one finds everything as it was.
"""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any
from weakref import ref

import pytest

from pie_edge.control.engine import Engine
from pie_edge.errors import InferletCancelled, InferletFailed, InferletTrapped
from pie_edge.host import Host
from tests.backend.test_engine import nothing_held
from tests.host.hosting import Ended, finish
from tests.host.serving import Tool, serving
from tests.host.test_level1 import HEAD
from tests.host.tiny_hosting import tiny_host

POINTS = 50
LIFE = (
    HEAD
    + """
import os
from inferlet import Context, http, messaging, model, runtime, session, snapshots, store
from inferlet.eta import ForwardPass, Pipeline, WorkingSet, intrinsics, reduce_argmax

passed = 0

def point(input):
    global passed
    passed += 1
    if passed == input.get("at"):
        print("here", flush=True)
        if input["how"] == "trap":
            os.abort()
        if input["how"] == "raise":
            raise ValueError("as asked")
        while True:
            pass

async def pages(input):
    kv, embeds = alloc_kvpage(3), alloc_emb(12)
    point(input)
    queue = create_queue()
    queue.set_priority(3)
    point(input)
    embed_txt(embeds[:11], range(5, 16), range(11))
    point(input)
    forward(kv[:0], embeds[:11], kv[:11], embeds[11], queue=queue)
    point(input)
    copy_kvpage(kv[:3], kv[20:23], queue=queue)
    point(input)
    waiting = asyncio.create_task(get_next_dist(embeds[11]))
    await asyncio.sleep(0)
    point(input)
    best = (await waiting).max_index()
    point(input)
    mask_kvpage(kv[:8], [True] + [False] * 7, queue=queue)
    point(input)
    await queue.synchronize()
    point(input)
    export_kvpage(kv, "life")
    point(input)
    mine = import_kvpage("life")
    point(input)
    embed_txt(embeds[0], [best], [11])
    forward(mine[:11], embeds[0], mine[11:12], embeds[0])
    point(input)
    await get_next_dist(embeds[0])
    point(input)
    withdraw_kvpage("life")
    point(input)
    dealloc_kvpage(kv)
    point(input)
    dealloc_emb(embeds)
    point(input)

async def passes(input):
    context = WorkingSet(tokens=16)
    point(input)
    with Pipeline() as pipe:
        for place in range(3):
            step = ForwardPass()
            step.embed([place + 3])
            step.bind_state(context, context.geometry(place, place + 1))
            out = step.epilogue(lambda: reduce_argmax(intrinsics.logits()))
            pipe.submit(step)
            point(input)
            await out
            point(input)
    copy = context.fork()
    point(input)
    copy.close()
    point(input)

async def contexts(input):
    context = Context(model)
    context.fill("the end")
    point(input)
    fork = context.fork()
    await asyncio.gather(context.generate_until(max_tokens=3), fork.generate_until(max_tokens=3))
    point(input)
    await context.save("life")
    point(input)
    loaded = await Context.load("life")
    point(input)
    await loaded.generate_until(max_tokens=2)
    point(input)
    snapshots.delete("life")
    point(input)

CHILD = '''
import asyncio
from inferlet import session
from inferlet.traits import *
async def main(input):
    kv, e = alloc_kvpage(2), alloc_emb()
    embed_txt(e, [5], [0])
    forward(kv[:0], e, kv[:1], e)
    await get_next_dist(e)
    session.send("ready")
    return await session.receive()
'''

async def others(input):
    subscription = messaging.subscribe("life")
    point(input)
    messaging.broadcast("life", "hello")
    point(input)
    assert await subscription.receive() == "hello"
    waiting = asyncio.create_task(subscription.receive())
    await asyncio.sleep(0)
    point(input)
    child = runtime.launch(CHILD)
    point(input)
    assert await child.receive() == "ready"
    point(input)
    ending = asyncio.create_task(child.result())
    await asyncio.sleep(0)
    point(input)
    child.send("done")
    point(input)
    assert await ending == "done"
    point(input)
    waiting.cancel()
    subscription.close()
    point(input)

async def outside(input):
    store.set("life", "long")
    point(input)
    slow = asyncio.create_task(http.get(input["tool"] + "slow"))
    await asyncio.sleep(0)
    point(input)
    answer = await http.get(input["tool"] + "echo?q=1")
    point(input)
    slow.cancel()
    assert store.get("life") == "long" and answer.ok
    point(input)
    detached = runtime.launch("async def main(input): return 1", detached=True)
    point(input)
    try:
        alloc_kvpage(10**6)
    except errors.ResourceError:
        point(input)
    group = asyncio.gather(*[asyncio.sleep(9), messaging.subscribe("other").receive(), runtime.launch(CHILD).receive()])
    try:
        await asyncio.wait_for(group, 0.001)
    except TimeoutError:
        point(input)
    store.delete("life")
    point(input)
    assert await detached.result() == 1
    point(input)

async def main(input):
    point(input)
    for part in (pages, passes, contexts, others, outside):
        await part(input)
    return passed
"""
)
HOW: dict[str, type[Exception]] = {"trap": InferletTrapped, "raise": InferletFailed, "cancel": InferletCancelled}


async def ended_at(host: Host, tool: Tool, at: int, how: str) -> Ended:
    instances: list[Any] = []

    def heard(text: str) -> None:
        if how == "cancel" and "here" in text:
            instances[0].cancel("as asked")

    instances.append(host.launch(LIFE, {"at": at, "how": how, "tool": tool.url}, name="life", on_text=heard))
    ended = Ended()
    try:
        ended.result = (await instances[0].result()).result
    except Exception as error:
        ended.error = error  # type: ignore[assignment]
    return ended


async def settled(engine: Engine) -> bool:
    """Once the steps that were under way have landed."""
    for _ in range(200):
        if nothing_held(engine) and not engine.spaces:
            return True
        await asyncio.sleep(0.005)
    return False


# asyncio gives the socket of a connection attempt that was cancelled to the garbage collector, which warns of it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("how", HOW)
def test_whoever_ends_at_any_point_of_its_life_leaves_nothing(how: str, tmp_path: Path) -> None:
    async def body() -> None:
        async with serving() as tool, tiny_host(data=tmp_path, http=(tool.host,)) as (host, engine):
            alone = await finish(host, LIFE, {"tool": tool.url}, name="life")
            assert alone.error is None, alone.traceback
            assert alone.result >= POINTS, "its life has fewer points than are promised"
            for at in range(1, alone.result + 1):
                ended = await ended_at(host, tool, at, how)
                assert type(ended.error) is HOW[how], (at, ended)
                if "life" in engine.exports:  # an export outlives its inferlet
                    engine.pool.give_back(engine.exports.pop("life"))
                assert await settled(engine), f"something is held after it ended at point {at}"
                assert not host.instances
                assert len(host._facilities.topics) == 0
            assert (await finish(host, LIFE, {"tool": tool.url}, name="life")).result == alone.result

    asyncio.run(body())


PLAIN = """
from inferlet import Context, session

async def main(input):
    context = Context()
    context.fill([5, 6, 7])
    async for piece in context.generate(max_tokens=6):
        session.send(piece)
    return len(context.tokens)
"""


def test_whoever_has_ended_is_freed_without_the_garbage_collector() -> None:
    async def body() -> None:
        async with tiny_host() as (host, engine):

            async def lived() -> ref[Any]:
                instance = host.launch(PLAIN, {})
                assert (await instance.result()).result > 3
                return ref(instance.guest)

            await lived()
            gc.collect()
            gc.disable()
            try:
                guest = await lived()
                assert await settled(engine)
                await asyncio.sleep(0.05)
                assert guest() is None, "cycles are left: a collection of theirs holds up every step"
                assert gc.collect() < 50
            finally:
                gc.enable()

    asyncio.run(body())
