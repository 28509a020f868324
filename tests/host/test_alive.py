"""Five hundred inferlets on the real engine at once: each gets the tokens that it would get alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pie_edge.control.engine import Engine
from pie_edge.host import Host
from tests.host.model_free import Kinds
from tests.support.counting_backend import CountingBackend, greedy
from tests.support.tiny import PAGE, SPEC, open_tiny

ALIVE = 512
PROGRAM = """
from inferlet import session
from inferlet.eta import ForwardPass, Pipeline, WorkingSet, intrinsics, reduce_argmax

async def main(input):
    session.send("ready")
    await session.receive()
    pending, count, seen, answer = input["ids"], input["count"], 0, []
    context = WorkingSet(tokens=len(pending) + count)
    with Pipeline() as pipe:
        while len(answer) < count:
            step = ForwardPass()
            step.embed(pending)
            step.bind_state(context, context.geometry(seen, seen + len(pending)))
            best = step.epilogue(lambda: reduce_argmax(intrinsics.logits()))
            pipe.submit(step)
            seen += len(pending)
            pending = [await best]
            answer += pending
    return answer
"""


def prompt(number: int) -> list[int]:
    return [(number * 7 + i * i) % SPEC.vocabulary for i in range(2 + number % 40)]


async def answers(host: Host, count: int) -> list[list[int]]:
    """All are alive before the first is told to begin."""
    instances = [host.launch(PROGRAM, {"ids": prompt(n), "count": 5 + n % 8}, seed=n) for n in range(count)]
    assert [await instance.receive() for instance in instances] == ["ready"] * count
    assert len(host.instances) == count
    for instance in instances:
        instance.send("go")
    return [(await instance.result()).result for instance in instances]


async def on_host(engine: Engine, count: int) -> list[list[int]]:
    tokenizer: Any = Kinds()
    host = await Host.open(engine, tokenizer, None)
    try:
        return await answers(host, count)
    finally:
        await host.close()


@pytest.mark.slow
def test_five_hundred_and_twelve_inferlets_alive_at_once_get_the_tokens_that_each_gets_alone() -> None:
    # While a step takes its time, the calls of many gather for the next one.
    device = CountingBackend(SPEC.vocabulary, PAGE, seconds=0.02)

    async def body() -> None:
        engine = await open_tiny(device, rows=512, sequences=256, kv_memory=1 << 22, logits_memory=1 << 20)
        try:
            found = await on_host(engine, ALIVE)
            assert engine.pool.free + engine.prefixes.reclaimable == engine.pool.total
            assert not engine.spaces
        finally:
            await engine.close()
        assert found == [greedy(prompt(n), 5 + n % 8, SPEC.vocabulary) for n in range(ALIVE)]

    asyncio.run(body())
    assert max(device.steps) > 16
