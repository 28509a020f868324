"""Inferlets of a host that has two devices: they spread, a family stays together, and each ends where it computed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pie_edge.control.replicas import Replicas
from pie_edge.errors import DeviceLost, InferletFailed
from pie_edge.host import Host, Limits
from tests.backend.test_engine import expected, nothing_held
from tests.backend.test_replicas import backends
from tests.host.hosting import finish
from tests.support.tiny import open_tiny
from tests.support.tiny_text import TinyTokenizer, TinyTurns

GENERATE = """
from inferlet import Context
async def main(input):
    context = Context()
    context.fill(input["tokens"])
    await context.generate_until(max_tokens=4, stop_tokens=[])
    return context.tokens[-4:]
"""
FAMILY = f"""
import asyncio
from inferlet import Context, session
from inferlet.runtime import launch
CHILD = '''{GENERATE}'''
async def main(input):
    context = Context()
    context.fill([7, 8, 9])
    await context.generate_until(max_tokens=1, stop_tokens=[])
    children = [launch(CHILD, {{"tokens": tokens}}) for tokens in input["prompts"]]
    results = [await child.result() for child in children]
    session.send("ready")
    await session.receive()
    return [*results, await launch(CHILD, {{"tokens": input["prompts"][0]}}).result()]
"""
PROMPTS = [[5, 6], [9, 2, 6], [11], [30, 31]]


def answer(prompt: list[int]) -> list[int]:
    """A context begins with a token of its own."""
    return expected([TinyTokenizer.bos, *prompt], 4)


def test_inferlets_spread_over_devices_and_one_that_is_lost_ends_its_own() -> None:
    async def body() -> None:
        devices = backends(sticky=True)
        replicas = Replicas([await open_tiny(device) for device in devices])
        tokenizer: Any = TinyTokenizer()
        host = await Host.open(replicas, tokenizer, TinyTurns(), Limits(time=60.0))
        ended = await asyncio.gather(*(finish(host, GENERATE, {"tokens": prompt}) for prompt in PROMPTS))
        assert [one.result for one in ended] == [answer(prompt) for prompt in PROMPTS]
        assert all(engine.statistics.steps for engine in replicas.engines)
        families = []
        for number in range(2):
            families.append(host.launch(FAMILY, {"prompts": PROMPTS[:2]}))
            assert await families[number].receive() == "ready"
        assert [family.device for family in families] == ["card 0", "card 1"]
        devices[1].lost = DeviceLost("it is gone")
        for family in families:
            family.send("go on")
        assert (await families[0].result()).result == [answer(prompt) for prompt in (*PROMPTS[:2], PROMPTS[0])]
        with pytest.raises(InferletFailed, match="it is gone"):
            await families[1].result()
        late = await asyncio.gather(*(finish(host, GENERATE, {"tokens": prompt}) for prompt in PROMPTS))
        assert [one.result for one in late] == [answer(prompt) for prompt in PROMPTS]
        await host.close()
        for engine in replicas.engines:
            assert nothing_held(engine) and not engine.spaces
        await replicas.close()

    asyncio.run(body())
