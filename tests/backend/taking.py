"""Programs whose passes take values of earlier ones on the device, and the same ones that await everything."""

from __future__ import annotations

import asyncio
import json
import random
import struct
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pie_edge.control.engine import Engine
from pie_edge.control.queue import ForwardCall, Next, OutputOf, Source
from pie_edge.control.space import Space
from tests.backend.test_engine import nothing_held
from tests.backend.test_run_ahead import settled, slots_free
from tests.support.tiny import ARGMAX


def wire(*nodes: dict[str, Any], outputs: list[Any], unreturned: int = 0) -> str:
    """An epilogue whose node i is on line i of main.py."""
    lined = [{"in": [], "attrs": {}, "line": f"main.py:{number}"} | node for number, node in enumerate(nodes)]
    result = "list" if len(outputs) - unreturned != 1 else "one"
    return json.dumps({"v": 1, "nodes": lined, "outputs": outputs, "result": result, "unreturned": unreturned})


LOGITS = {"op": "logits"}
BEST = {"op": "reduce_argmax", "in": [0]}


def parameter(dtype: str, *shape: int, index: int = 0) -> dict[str, Any]:
    return {"op": "param", "attrs": {"index": index, "dtype": dtype, "shape": list(shape)}}


async def ended(engine: Engine, *spaces: Space) -> None:
    """Nothing may be left of them."""
    for space in spaces:
        space.close()
    await settled(engine)
    assert nothing_held(engine)
    assert slots_free(engine)


GREEDY: Mapping[str, Any] = {"epilogue": ARGMAX}


async def ahead(
    space: Space, prompt: list[int], count: int, call: Mapping[str, Any] = GREEDY, first: int = 0
) -> list[int]:
    """As ``greedy``, with two passes under way: each embeds what the one before it hasn't given back yet. ``first`` is the
    first of the calls' names."""
    context, answer, pending = space.create_working_set(len(prompt) + count), [], []
    for number in range(count):
        place = len(prompt) + number - 1
        if number:
            source = OutputOf(first + number - 1, 0)
            asked = ForwardCall(context, (), place, place + 1, (0,), embeds=((0, source),), name=first + number, **call)
        else:
            asked = ForwardCall(context, tuple(prompt), 0, place + 1, (place,), name=first, **call)
        pending.append(space.submit(asked))
        if number:
            answer.append(int((await pending[number - 1])[0].data[0]))
            space.channels.forget(first + number - 1)
    answer.append(int((await pending[-1])[0].data[0]))
    return answer


SUMMING = wire(
    LOGITS,
    BEST,
    parameter("f32"),
    {"op": "reduce_max", "in": [0]},
    {"op": "add", "in": [2, 3]},
    outputs=[1, 4],
    unreturned=1,
)
"""The likeliest token; and a running sum of the largest logits, which comes from a channel and goes back there."""


async def summing(space: Space, count: int, *, on_device: bool) -> tuple[list[int], float]:
    """Both, over ``count`` greedy passes. Without the device each sum is read and given again as a parameter."""
    context, answer = space.create_working_set(32), []
    tokens, total = space.channels.create((), "u32", 1), space.channels.create((), "f32", 1)
    sum_before = struct.pack("<f", 0.0)
    space.channels.put(tokens, "u32", struct.pack("<I", 5))
    space.channels.put(total, "f32", sum_before)
    pending = []
    for place in range(count):
        fetches: tuple[tuple[int, Source], ...] = ((0, Next(total)),) if on_device else ()
        call = ForwardCall(
            context,
            (),
            place,
            place + 1,
            (0,),
            SUMMING,
            (sum_before,),
            embeds=((0, Next(tokens)),),
            fetches=fetches,
            puts=((0, tokens), (1, total)),
        )
        if not on_device:
            space.channels.take(total)
        pending.append(space.submit(call))
        if not on_device:
            await pending[-1]
            sum_before = await space.channels.read(total)[0]
    answer = [int((await one)[0].data[0]) for one in pending]
    (found,) = struct.unpack("<f", await space.channels.take(total)[0])
    return answer, found


TOP3 = wire(LOGITS, {"op": "top_k", "in": [0], "attrs": {"k": 3}}, outputs=[[1, 1]])
DRAWN = wire(LOGITS, {"op": "gumbel_max", "in": [0]}, outputs=[1])


class Wanderer:
    """A random program. It is the same whether it awaits every pass (``at_once``) or takes from the device what it needs."""

    def __init__(self, space: Space, seed: int, *, at_once: bool) -> None:
        self.space = space
        self.rng = random.Random(seed)
        self.at_once = at_once
        self.calls: list[asyncio.Future[Any]] = []
        self.contexts: list[tuple[int, int, int]] = []
        """Each with its length and its last call."""
        self.channel = space.channels.create((), "u32", 3)
        self.queue: list[int] = []
        """The calls whose tokens are in the channel."""
        self.sizes: list[int] = []

    async def run(self) -> list[tuple[int, ...]]:
        for _ in range(30):
            await self.go()
        return [await self.tokens(number) for number in range(len(self.calls))]

    async def go(self) -> None:
        what = self.rng.random()
        if not self.contexts or (len(self.contexts) < 3 and what < 0.1):
            prompt = tuple(self.rng.randrange(64) for _ in range(self.rng.randrange(1, 20)))
            handle = self.space.create_working_set(64)
            await self.ask(handle, 0, prompt, [], ARGMAX)
            return
        handle, length, last = self.contexts.pop(self.rng.randrange(len(self.contexts)))
        if length > 50 or what < 0.15:
            self.space.drop(handle)
            return
        if what < 0.22:
            # A fork has what has been awaited.
            await self.calls[last]
            self.contexts.append((self.space.fork(handle), length, last))
        elif what < 0.28:
            length = max(length - self.rng.randrange(1, 6), 0)
        others = [call for _, _, call in self.contexts][: self.rng.randrange(2)]
        known = tuple(self.rng.randrange(64) for _ in range(self.rng.randrange(-3, 3)))
        epilogue = self.rng.choice((ARGMAX, ARGMAX, DRAWN, DRAWN, TOP3))
        await self.ask(handle, length, known, [last, *others], epilogue)
        if self.rng.random() < 0.2:
            await asyncio.sleep(0)

    async def ask(self, handle: int, place: int, known: tuple[int, ...], sources: list[int], epilogue: str) -> None:
        """A pass of ``known`` tokens, those of earlier calls, and perhaps one of the channel."""
        takes = bool(self.queue) and self.rng.random() < 0.4
        if takes:
            sources = [*sources, self.queue.pop(0)]
        number, end = len(self.calls), place + len(known) + sum(self.sizes[source] for source in sources)
        puts = epilogue != TOP3 and len(self.queue) < 3 and self.rng.random() < 0.3
        named: list[Source] = [OutputOf(source, 0) for source in sources]
        if takes:
            named[-1] = Next(self.channel)
        embeds = tuple((len(known), source) for source in named)
        if self.at_once:
            known, embeds = (*known, *[token for source in sources for token in await self.tokens(source)]), ()
        call = ForwardCall(handle, known, place, end, (end - place - 1,), epilogue, embeds=embeds, name=number)
        through = ((0, self.channel),) if puts and not self.at_once else ()
        self.calls.append(self.space.submit(replace(call, puts=through)))
        self.sizes.append(3 if epilogue == TOP3 else 1)
        self.queue += [number] * puts
        self.contexts.append((handle, end, number))
        if self.at_once:
            await self.calls[number]

    async def tokens(self, number: int) -> tuple[int, ...]:
        return tuple(int(token) for token in (await self.calls[number])[0].data)
