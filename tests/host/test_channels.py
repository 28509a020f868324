"""Run-ahead by embedding outputs that weren't awaited, and channels, as a Python program has them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pie_edge.errors import DeviceLost
from tests.backend.test_engine import expected
from tests.host.tiny_hosting import run_tiny
from tests.support.native_guest import native

from inferlet import errors  # isort: skip
from inferlet.eta import (  # isort: skip
    Channel,
    ForwardPass,
    Output,
    Pipeline,
    WorkingSet,
    cast,
    dtype,
    intrinsics,
    reduce_argmax,
    reduce_max,
    sample,
    softmax,
    stack,
    top_k,
)

Run = Callable[..., Any]
PROMPT = [3, 1, 4]


@pytest.fixture(scope="module", params=[0, 1], ids=["alone", "with prediction"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    with native(speculation_depth=request.param) as runner:
        yield runner


def best() -> Any:
    return reduce_argmax(intrinsics.logits())


def drawn() -> Any:
    return sample(temperature=1.5, top_k=20)


def step(context: WorkingSet, tokens: Any, start: int, count: int, function: Any = best) -> Output:
    made = ForwardPass()
    made.embed(tokens)
    made.bind_state(context, context.geometry(start, start + count))
    output: Output = made.epilogue(function)
    made.submit(Pipeline())
    return output


async def awaited(count: int, function: Any = best) -> list[int]:
    context, tokens = WorkingSet(tokens=64), list(PROMPT)
    tokens.append(await step(context, tokens, 0, len(tokens), function))
    while len(tokens) < len(PROMPT) + count:
        tokens.append(await step(context, tokens[-1:], len(tokens) - 1, 1, function))
    return tokens[len(PROMPT) :]


async def ahead(count: int, function: Any = best) -> list[int]:
    """Never more than one pass behind."""
    context = WorkingSet(tokens=64)
    outputs = [step(context, PROMPT, 0, len(PROMPT), function)]
    for place in range(len(PROMPT), len(PROMPT) + count - 1):
        outputs.append(step(context, outputs[-1], place, 1, function))
        await outputs[-2]
    return [await output for output in outputs]


def test_embedding_what_was_not_awaited_changes_no_token(run: Run) -> None:
    assert run(lambda: awaited(10)) == run(lambda: ahead(10)) == expected(PROMPT, 10)
    for seed in range(3):
        assert run(lambda: ahead(10, drawn), seed=seed) == run(lambda: awaited(10, drawn), seed=seed)


def test_contexts_side_by_side_run_ahead_each(run: Run) -> None:
    async def program() -> list[list[int]]:
        return await asyncio.gather(*(ahead(8) for _ in range(4)))

    assert run(program) == [expected(PROMPT, 8)] * 4


def test_tokens_of_all_kinds_are_embedded_in_their_order(run: Run) -> None:
    def several() -> Any:
        values, ids = top_k(intrinsics.logits(), 3)
        return {"ids": ids, "best": reduce_argmax(intrinsics.logits()), "value": values[0]}

    async def program(wait: bool) -> tuple[list[int], int]:
        context, other = WorkingSet(tokens=64), WorkingSet(tokens=64)
        first = step(context, PROMPT, 0, 3, several)
        channel = Channel.from_([7, 8], dtype.u32)
        if wait:
            await first
        second = step(other, [5, first["best"], 6, first["ids"], channel], 0, 8)
        found = await first
        return [5, found["best"], 6, *found["ids"], 7, 8], await second

    for wait in (False, True):
        tokens, token = run(lambda wait=wait: program(wait))
        assert [token] == expected(tokens, 1)


def test_an_answer_that_turns_out_to_have_ended_is_cut_and_continued(run: Run) -> None:
    """The pass that was submitted before the stop token was seen is written over by whatever comes next."""
    tokens = expected(PROMPT, 12)
    stop = tokens[4]
    assert stop not in tokens[:4]

    async def program() -> list[int]:
        context, outputs = WorkingSet(tokens=64), []
        outputs.append(step(context, PROMPT, 0, len(PROMPT)))
        answer: list[int] = []
        while not answer or answer[-1] != stop:
            outputs.append(step(context, outputs[-1], len(PROMPT) + len(outputs) - 1, 1))
            answer.append(await outputs[-2])
        seen = len(PROMPT) + len(answer) - 1
        return [*answer, await step(context, [9, 10], seen, 2)]

    assert run(program) == [*tokens[:5], *expected([*PROMPT, *tokens[:4], 9, 10], 1)]


# ---- channels


async def summing(count: int) -> tuple[list[int], list[float], float]:
    """A whole decoding loop on the device: the token and a running sum go from pass to pass in channels."""
    token, total = Channel((), dtype.u32).named("token"), Channel.from_(0.0)
    history = Channel([2], dtype.f32).capacity(count)
    tokens = Channel((), dtype.i32).capacity(count)

    def function() -> None:
        chosen, largest = reduce_argmax(intrinsics.logits()), reduce_max(intrinsics.logits())
        token.put(chosen)
        tokens.put(cast(chosen, "i32"))
        summed = total.take() + largest
        total.put(summed)
        history.put(stack([largest, summed]))

    context = WorkingSet(tokens=64)
    assert await step(context, PROMPT, 0, len(PROMPT), function) is None
    for place in range(len(PROMPT), len(PROMPT) + count - 1):
        step(context, token, place, 1, function)
    found = [await tokens.take() for _ in range(count)]
    largest = [(await history.take())[0] for _ in range(count - 1)]
    last = await history.take_host()
    assert await total.read_scalar() == await total.read() == last[1]
    assert await token.take_scalar() == found[-1]
    return found, [*largest, last[0]], last[1]


def test_a_loop_whose_state_never_leaves_the_device(run: Run) -> None:
    tokens, largest, total = run(lambda: summing(8))
    assert tokens == expected(PROMPT, 8)
    assert total == pytest.approx(sum(largest), rel=1e-6)


def test_a_channel_gives_values_in_their_order_and_shape(run: Run) -> None:
    async def program() -> list[Any]:
        channel = Channel([2, 2], dtype.f32).capacity(3)
        channel.put([[1, 2], [3, 4]])
        channel.put([[5, 6], [7, 8]])
        later = channel.read()
        channel.set([0.5, 0.25, -1, -2])
        first, host, second = await channel.read(), await channel.take_host(), channel.take()
        channel.put([[9, 9], [9, 9]])
        one = Channel.from_(-7)
        return [await later, first, host, await second, await channel.take_scalar(), await one.take(), str(one.dtype)]

    assert run(program) == [
        [[1, 2], [3, 4]],
        [[0.5, 0.25], [-1, -2]],
        [0.5, 0.25, -1, -2],
        [[5, 6], [7, 8]],
        9,
        -7,
        "i32",
    ]


def test_an_epilogue_that_reads_leaves_the_value_to_others(run: Run) -> None:
    async def program() -> list[Any]:
        scale = Channel.from_(2.0)
        context = WorkingSet(tokens=16)
        outputs = [step(context, [5], place, 1, lambda: scale.read() * 3) for place in range(3)]
        scale.set(10.0)
        outputs.append(step(context, [5], 3, 1, lambda: (scale.take() * 3, scale.take() + 1)))
        scale_before = [await output for output in outputs[:3]]
        with pytest.raises(errors.ResourceError, match="nothing more was put"):
            await outputs[3]
        return [*scale_before, await scale.take()]

    assert run(program) == [6.0, 6.0, 6.0, 10.0]


def test_a_program_that_cancels_its_waiting_still_has_the_value(run: Run) -> None:
    async def program() -> list[int]:
        context = WorkingSet(tokens=16)
        first = step(context, PROMPT, 0, 3)
        waiting = asyncio.ensure_future(_value_of(first))
        await asyncio.sleep(0)
        waiting.cancel()
        return [await step(context, first, 3, 1)]

    assert run(program) == expected(PROMPT, 2)[1:]


async def _value_of(output: Output) -> Any:
    return await output


# ---- what can't be


def bad(*_: Any) -> Any:
    return softmax(intrinsics.logits())[:3]


REFUSED: dict[str, tuple[Callable[[WorkingSet], Any], str, str]] = {
    "logits": (lambda ws: step(ws, step(ws, PROMPT, 0, 3, bad), 3, 3), "EpilogueError", "test_channels.py:"),
    "several tensors": (
        lambda ws: step(ws, step(ws, PROMPT, 0, 3, lambda: (best(), best())), 3, 1),
        "UsageError",
        "that is 2 tensors; embed one of them",
    ),
    "a part that isn't there": (
        lambda ws: step(ws, PROMPT, 0, 3, lambda: {"a": best()})["b"],
        "UsageError",
        "output['b'] was asked for; this one is a dict of a",
    ),
    "a part of a single one": (lambda ws: step(ws, PROMPT, 0, 3)[0], "UsageError", "a single tensor"),
    "a pass never submitted": (
        lambda ws: step(ws, ForwardPass().epilogue(best), 0, 1),
        "UsageError",
        "wasn't submitted",
    ),
    "fewer places": (
        lambda ws: step(ws, [1, step(ws, PROMPT, 0, 3)], 3, 1),
        "InvalidHandle",
        "2 tokens for the places 3…4",
    ),
    "a pass that was refused": (
        lambda ws: step(ws, step(ws, PROMPT, 0, 3, lambda: softmax(best())), 3, 1),
        "EpilogueError",
        "takes a value of a pass that failed: ",
    ),
    "floats of a channel": (lambda ws: step(ws, Channel.from_(1.0), 0, 1), "EpilogueError", "embeds f32[]"),
    "an empty channel": (lambda ws: step(ws, Channel((), "u32"), 0, 1), "ResourceError", "nothing more was put"),
    "awaiting an empty channel": (lambda ws: Channel((), "u32").take(), "ResourceError", "nothing more was put"),
    "a full channel": (lambda ws: Channel.from_(1).put(2), "ResourceError", "full with 1 values"),
    "a number that is no token": (lambda ws: step(ws, Channel.from_(64), 0, 1), "InvalidHandle", "embeds token 64"),
    "a negative number": (lambda ws: step(ws, Channel.from_(-1), 0, 1), "InvalidHandle", "embeds token"),
    "a tensor outside": (lambda ws: Channel.from_(1).put(_escaped(ws)), "UsageError", "put outside of an epilogue"),
    "too many entries": (lambda ws: Channel([2], "u32").put([1, 2, 3]), "EpilogueError", "3 entries"),
    "a fraction for whole numbers": (lambda ws: Channel((), "u32").put(0.5), "EpilogueError", "whole numbers from 0"),
    "a channel of bools": (lambda ws: Channel((), "bool"), "UsageError", "make it u32"),
    "a channel that is too large": (lambda ws: Channel([5000], "f32").put([0] * 5000), "ResourceError", "1 to 4,096"),
    "a channel in use": (lambda ws: Channel.from_(1).capacity(2), "UsageError", "is in use"),
    "a channel without room": (lambda ws: Channel((), "u32").capacity(0).put(1), "ResourceError", "at least 1"),
    "a closed channel": (lambda ws: _closed().put(1), "UsageError", "was closed"),
    "another type put": (
        lambda ws: step(ws, PROMPT, 0, 3, lambda: FLOATS.put(best())),
        "EpilogueError",
        "u32[] into a channel of f32[]",
    ),
    "an epilogue that only takes": (
        lambda ws: step(ws, PROMPT, 0, 3, lambda: (FLOATS.take(), None)[1]),
        "EpilogueError",
        "returned None",
    ),
}


def _closed() -> Channel:
    channel = Channel.from_(1)
    channel.close()
    return channel


def _escaped(context: WorkingSet) -> Any:
    kept: list[Any] = []

    def function() -> Any:
        kept.append(best())
        return kept[0]

    step(context, PROMPT, 0, 3, function)
    return kept[0]


@pytest.mark.parametrize("case", REFUSED)
def test_bad_use_is_a_typed_error(run: Run, case: str) -> None:
    statement, kind, says = REFUSED[case]

    async def program() -> Any:
        global FLOATS
        FLOATS = Channel((), dtype.f32)
        context = WorkingSet(tokens=16)
        try:
            found = statement(context)
            await found
        except errors.PieError as error:
            return type(error).__name__, str(error), await step(context, PROMPT, 0, 3)
        raise AssertionError("nothing was refused")

    name, message, after = run(program)
    assert name == kind
    assert says in message, message
    assert [after] == expected(PROMPT, 1)


FLOATS: Channel


@pytest.mark.parametrize("seen", [False, True], ids=["while it is under way", "after it was awaited"])
def test_a_pass_fails_like_the_one_whose_output_it_embeds(run: Run, seen: bool) -> None:
    async def program() -> list[str]:
        run.thread.backend.fail_next = DeviceLost("the device went away")  # type: ignore[attr-defined]
        context = WorkingSet(tokens=16)
        first = step(context, PROMPT, 0, 3)
        if seen:
            with pytest.raises(errors.DeviceLost):
                await first
        second = step(context, first, 3, 1)
        third = step(context, second, 4, 1)
        found = await asyncio.gather(first, second, third, return_exceptions=True)
        return [type(one).__name__ for one in found]

    assert run(program) == ["DeviceLost"] * 3
    assert run(lambda: ahead(3)) == expected(PROMPT, 3)


# ---- in a component


SOURCE = """
from inferlet.eta import *


async def main(input):
    prompt, count = input["prompt"], input["count"]
    context, token, total = WorkingSet(tokens=64), Channel((), dtype.u32), Channel.from_(0.0)
    history = Channel([1], dtype.i32).capacity(count)
    counted = Channel.from_([0, 0], dtype.i32)

    def epilogue():
        best = reduce_argmax(intrinsics.logits())
        token.put(best)
        history.put(reshape(cast(best, "i32"), [1]))
        total.put(total.take() + reduce_max(intrinsics.logits()))
        counted.put(counted.take() + [1, 2])
        return best

    outputs, pending, start = [], prompt, 0
    with Pipeline() as pipe:
        for _ in range(count):
            step = ForwardPass()
            step.embed(pending)
            size = len(prompt) if start == 0 else 1
            step.bind_state(context, context.geometry(start, start + size))
            outputs.append(step.epilogue(epilogue))
            pipe.submit(step)
            start, pending = start + size, token
        step = ForwardPass()
        step.embed([outputs[-2], outputs[-1]])
        step.bind_state(context, context.geometry(start - 1, start + 1))
        last = step.epilogue(lambda: reduce_argmax(intrinsics.logits()))
        pipe.submit(step)
    token.set(7)
    answer = [await output for output in outputs]
    assert [await history.take_scalar() for _ in answer] == answer
    sums = await total.read()
    return {"answer": answer, "last": await last, "sum": sums > 0, "set": await token.take(), "counted": await counted.take()}
"""


def test_a_component_has_all_of_it() -> None:
    ended = run_tiny(SOURCE, {"prompt": PROMPT, "count": 6})
    assert ended.error is None, ended.traceback
    tokens = expected(PROMPT, 7)
    assert ended.result == {
        "answer": tokens[:6],
        "last": tokens[6],
        "sum": True,
        "set": 7,
        "counted": [6, 12],
    }
