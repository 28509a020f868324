"""Inferlets of a host that has two devices: they spread, a family stays together, and each ends where it computed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from pie_edge.control.replicas import Replicas
from pie_edge.errors import DeviceLost, InferletFailed
from pie_edge.host import Host, Limits
from pie_edge.host.instance import Instance
from tests.backend.test_engine import expected, nothing_held
from tests.backend.test_replicas import backends
from tests.host.hosting import finish
from tests.host.test_lent import GO_ON, LEAVE, TEXT
from tests.support.reference_backend import ReferenceBackend
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
SAVE = """
from inferlet import Context
async def main(input):
    context = Context(seed=1)
    context.fill(input["text"])
    await context.generate_until(max_tokens=1, stop_tokens=[])
    await context.save("kept")
    await context.generate_until(max_tokens=4, stop_tokens=[])
    return context.tokens
"""
LOAD = """
from inferlet import Context
async def main(input):
    context = await Context.load("kept")
    await context.generate_until(max_tokens=4, stop_tokens=[])
    return context.tokens
"""
PROMPTS = [[5, 6], [9, 2, 6], [11], [30, 31]]


def answer(prompt: list[int]) -> list[int]:
    """A context begins with a token of its own."""
    return expected([TinyTokenizer.bos, *prompt], 4)


Body = Callable[[Host, Replicas, list[ReferenceBackend]], Awaitable[None]]


def on_two(body: Body, data: Path | None = None) -> None:
    """At the end nothing may be left of any inferlet."""

    async def inside() -> None:
        devices = backends(sticky=True)
        replicas = Replicas([await open_tiny(device) for device in devices])
        tokenizer: Any = TinyTokenizer()
        host = await Host.open(replicas, tokenizer, TinyTurns(), Limits(time=60.0), data=data)
        await body(host, replicas, devices)
        await host.close()
        for engine in replicas.engines:
            assert nothing_held(engine) and not engine.spaces
        await replicas.close()

    asyncio.run(inside())


async def busy(host: Host, replicas: Replicas, number: int) -> Instance:
    """One that has computed on this device, and waits."""
    family = host.launch(FAMILY, {"prompts": PROMPTS[:1]})
    assert await family.receive() == "ready"
    assert family.device == replicas.engines[number].device_name
    return family


def test_inferlets_spread_over_devices_and_one_that_is_lost_ends_its_own() -> None:
    async def body(host: Host, replicas: Replicas, devices: list[ReferenceBackend]) -> None:
        ended = await asyncio.gather(*(finish(host, GENERATE, {"tokens": prompt}) for prompt in PROMPTS))
        assert [one.result for one in ended] == [answer(prompt) for prompt in PROMPTS]
        assert all(engine.statistics.steps for engine in replicas.engines)
        families = [await busy(host, replicas, number) for number in range(2)]
        devices[1].lost = DeviceLost("it is gone")
        for family in families:
            family.send("go on")
        assert (await families[0].result()).result == [answer(PROMPTS[0])] * 2
        with pytest.raises(InferletFailed, match="it is gone"):
            await families[1].result()
        late = await asyncio.gather(*(finish(host, GENERATE, {"tokens": prompt}) for prompt in PROMPTS))
        assert [one.result for one in late] == [answer(prompt) for prompt in PROMPTS]

    on_two(body)


def test_what_one_leaves_is_found_on_its_device_and_what_one_saves_wherever_it_is_wanted(tmp_path: Path) -> None:
    async def body(host: Host, replicas: Replicas, _: list[ReferenceBackend]) -> None:
        first = await busy(host, replicas, 0)
        left = (await finish(host, LEAVE, {"text": TEXT, "seconds": None})).result
        assert "left" in replicas.engines[1].shared
        second = await busy(host, replicas, 1)
        saved = (await finish(host, SAVE, {"text": TEXT})).result
        before = [engine.statistics.rows for engine in replicas.engines]
        resumed, tokens, forwarded, _ = (await finish(host, GO_ON, {"tokens": left, "more": " yes"})).result
        assert (resumed, forwarded) == (len(left) - 1, len(tokens) - 1 - resumed)
        assert replicas.engines[0].statistics.rows == before[0]
        assert (await finish(host, LOAD)).result == saved
        for family in (first, second):
            family.cancel()
        replicas.engines[1].shared.remove("left")

    on_two(body, tmp_path)
