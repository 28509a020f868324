"""asyncio inside of an inferlet: what the standard library promises holds on the host's one waiting call."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tests.host.hosting import finish, run, together
from tests.host.model_free import Engine, Kinds, greedy

PROGRAMS = {
    "gather waits for all at once": (
        """
import asyncio, time
async def main(input):
    start = time.monotonic()
    await asyncio.gather(*[asyncio.sleep(0.05) for _ in range(20)])
    return time.monotonic() - start < 0.5
""",
        True,
    ),
    "wait_for ends what takes too long": (
        """
import asyncio
async def main(input):
    try:
        await asyncio.wait_for(asyncio.sleep(10), 0.01)
    except TimeoutError:
        return "late"
""",
        "late",
    ),
    "a task group cancels its other tasks": (
        """
import asyncio
async def main(input):
    ended = []
    async def slow():
        try:
            await asyncio.sleep(10)
        finally:
            ended.append("slow")
    async def fails():
        await asyncio.sleep(0.001)
        raise ValueError
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(slow())
            group.create_task(fails())
    except* ValueError:
        ended.append("caught")
    return ended
""",
        ["slow", "caught"],
    ),
    "timers fire in order": (
        """
import asyncio
async def main(input):
    order = []
    async def one(name, after):
        await asyncio.sleep(after)
        order.append(name)
    await asyncio.gather(one("c", 0.03), one("a", 0.01), one("b", 0.02))
    return order
""",
        ["a", "b", "c"],
    ),
    "queues, locks and events work": (
        """
import asyncio
async def main(input):
    queue, event, lock = asyncio.Queue(1), asyncio.Event(), asyncio.Lock()
    async def producer():
        for i in range(5):
            async with lock:
                await queue.put(i)
        event.set()
    task = asyncio.create_task(producer())
    got = [await queue.get() for _ in range(5)]
    await event.wait()
    await task
    return got
""",
        [0, 1, 2, 3, 4],
    ),
    "async generators are closed at the end": (
        """
import asyncio
async def numbers():
    try:
        yield 1
        yield 2
    finally:
        print("closed")
async def main(input):
    async for number in numbers():
        return number
""",
        1,
    ),
    "time.sleep sleeps": (
        "import time\ndef main(input):\n    t = time.monotonic()\n    time.sleep(0.03)\n    return time.monotonic() - t >= 0.03",
        True,
    ),
    "contextvars are per task": (
        """
import asyncio, contextvars
name = contextvars.ContextVar("name")
async def one(value):
    name.set(value)
    await asyncio.sleep(0)
    return name.get()
async def main(input): return await asyncio.gather(*[one(i) for i in range(3)])
""",
        [0, 1, 2],
    ),
}


@pytest.mark.parametrize("case", PROGRAMS)
def test_asyncio_keeps_its_promises(case: str) -> None:
    source, expected = PROGRAMS[case]
    ended = run(source)
    assert ended.error is None, ended
    assert ended.result == expected


def test_background_tasks_are_cancelled_when_main_returns() -> None:
    source = """
import asyncio
async def background():
    try:
        await asyncio.sleep(100)
    finally:
        print("cleaned up")
async def main(input):
    asyncio.create_task(background())
    await asyncio.sleep(0)
"""
    ended = run(source)
    assert ended.text == "cleaned up\n"


STEPS = """
import asyncio
from inferlet import chat, model
from inferlet.eta import ForwardPass, Pipeline, WorkingSet, intrinsics, reduce_argmax

async def generate(prompt, count):
    pending, made, seen = chat.prefix() + model.encode(prompt), [], 0
    context = WorkingSet(tokens=64)
    with Pipeline() as pipe:
        for _ in range(count):
            step = ForwardPass()
            step.embed(pending)
            step.bind_state(context, context.geometry(seen, seen + len(pending)))
            best = step.epilogue(lambda: reduce_argmax(intrinsics.logits()))
            pipe.submit(step)
            seen += len(pending)
            pending = [await best]
            made += pending
    return made
"""


def test_eight_generations_in_one_inferlet_go_side_by_side() -> None:
    source = STEPS + "async def main(input): return await asyncio.gather(*[generate(str(i), 5) for i in range(8)])"
    tokens = Kinds()

    async def body(host: Any, engine: Engine) -> tuple[Any, float]:
        engine.delay = 0.02
        start = time.perf_counter()
        ended = await finish(host, source)
        return ended, time.perf_counter() - start

    ended, took = together(body)
    assert ended.result == [greedy(tokens.prefix() + tokens.encode(str(i)), 5) for i in range(8)], ended
    assert took < 8 * 5 * 0.02, "they went one after the other"


def test_a_pass_can_be_given_up_and_the_program_goes_on() -> None:
    source = (
        STEPS
        + """
async def main(input):
    try:
        await asyncio.wait_for(generate("a", 1), 0.02)
    except TimeoutError:
        print("gave up")
    return await asyncio.sleep(0.01, "went on")
"""
    )

    async def body(host: Any, engine: Engine) -> Any:
        engine.delay = -1.0
        return await finish(host, source)

    ended = together(body)
    assert (ended.text, ended.result) == ("gave up\n", "went on"), ended


def test_a_program_that_never_pauses_still_learns_what_is_complete() -> None:
    source = (
        STEPS
        + """
async def main(input):
    task = asyncio.create_task(generate("a", 3))
    turns = 0
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    return task.result()
"""
    )
    tokens = Kinds()
    assert run(source).result == greedy(tokens.prefix() + tokens.encode("a"), 3)


def test_random_numbers_follow_the_seed() -> None:
    source = "import random\ndef main(input): return [random.random(), random.randrange(10**9)]"
    first, again, other = (run(source, seed=seed).result for seed in (7, 7, 8))
    assert first == again
    assert first != other


def test_a_seed_is_drawn_where_none_is_given() -> None:
    source = "from inferlet import runtime\ndef main(input): return runtime.seed()"

    async def body(host: Any, engine: Engine) -> list[Any]:
        return list(await asyncio.gather(*[finish(host, source) for _ in range(2)]))

    first, second = together(body)
    assert first.result != second.result
