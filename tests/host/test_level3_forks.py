"""Branches of contexts: they share what they have in common, go their own ways, and come together again."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pie_edge import errors as ours
from tests.support import tiny_oracle
from tests.support.native_guest import native
from tests.support.tiny import PAGE
from tests.support.tiny_text import TinyTokenizer

from inferlet import Context, errors  # isort: skip

TOKENIZER = TinyTokenizer()
LONG = "the one. stop the hello yes no 1 2 3 the ingerss"
PROMPT = [1, *TOKENIZER.encode(LONG)]
ENDINGS = ["a", "no", "stop", "3"]
Run = Callable[..., Any]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    with native(rows=64, sequences=16, speculation_depth=0) as runner:
        yield runner


def filled() -> Context:
    context = Context()
    context.fill(LONG)
    return context


def continued(ending: str, count: int) -> str:
    return TOKENIZER.decode(tiny_oracle.greedy([*PROMPT, *TOKENIZER.encode(ending)], count))


async def four(context: Context, count: int = 10, **options: Any) -> list[str]:
    """Four forks with endings of their own, generating at once."""
    forks = [context.fork() for _ in ENDINGS]
    for fork, ending in zip(forks, ENDINGS, strict=True):
        fork.fill(ending)
    return await asyncio.gather(*(fork.generate_until(max_tokens=count, stop_tokens=[], **options) for fork in forks))


@pytest.mark.parametrize("generated_before", [False, True])
def test_four_forks_generate_what_each_would_alone_in_shared_steps(generated_before: bool) -> None:
    async def program() -> Any:
        context = filled()
        if generated_before:
            await context.read(lambda: 0)
        return await four(context), context.tokens, await context.generate_until(max_tokens=6, stop_tokens=[])

    with native(rows=64, sequences=16, speculation_depth=0) as run:
        texts, tokens, own = run(program)
        statistics = run.thread.engine.statistics
    assert texts == [continued(ending, 10) for ending in ENDINGS]
    assert tokens == PROMPT
    assert own == TOKENIZER.decode(tiny_oracle.greedy(PROMPT, 6))
    assert statistics.largest_step == 4
    # The prompt, once, and its last token for each that reads its logits; four endings, and nine tokens after each; six more.
    endings = sum(len(TOKENIZER.encode(ending)) for ending in ENDINGS)
    last_tokens = 1 if generated_before else 4
    assert statistics.rows == len(PROMPT) - 1 + last_tokens + endings + 4 * 9 + 6


def test_forks_of_forks_and_forks_while_the_first_are_being_prepared(run: Run) -> None:
    async def program() -> Any:
        context = filled()
        first = context.fork()
        second = first.fork()
        second.fill("a")
        third = second.fork()
        third.fill("no")
        context.truncate(3)
        context.fill("ss")
        contexts = [context, first, second, third]
        texts = await asyncio.gather(*(one.generate_until(max_tokens=5, stop_tokens=[]) for one in contexts))
        return [one.tokens[:-5] for one in contexts], texts

    tokens, texts = run(program)
    a, no, ss = map(TOKENIZER.encode, ("a", "no", "ss"))
    assert tokens == [PROMPT[:3] + ss, PROMPT, PROMPT + a, PROMPT + a + no]
    assert texts == [TOKENIZER.decode(tiny_oracle.greedy(prompt, 5)) for prompt in tokens]


def test_forking_while_the_context_generates_takes_what_it_has_by_then(run: Run) -> None:
    async def program() -> Any:
        context = filled()
        forks = []

        def fork_now(answer: Any) -> bool:
            forks.append(context.fork())
            return len(answer.tokens) == 8

        await context.generate_until(until=fork_now, stop_tokens=[])
        bases = [fork.tokens for fork in forks]
        return bases, await asyncio.gather(*(fork.generate_until(max_tokens=3, stop_tokens=[]) for fork in forks))

    bases, texts = run(program)
    made = tiny_oracle.greedy(PROMPT, 11)
    assert bases == [PROMPT + made[:count] for count in range(1, 9)]
    assert texts == [TOKENIZER.decode(made[count : count + 3]) for count in range(1, 9)]


def test_forks_draw_numbers_of_their_own_and_the_same_ones_again(run: Run) -> None:
    async def program() -> Any:
        context = filled()
        forks = [context.fork() for _ in range(4)]
        texts = await asyncio.gather(*(f.generate_until(temperature=1.5, max_tokens=16, stop_tokens=[]) for f in forks))
        twins = [context.fork(seed=5) for _ in range(2)]
        return texts, await asyncio.gather(*(f.generate_until(temperature=1.5, max_tokens=9) for f in twins))

    texts, twins = run(program, seed=3)
    assert len(set(texts)) == 4
    assert twins[0] == twins[1]
    assert run(program, seed=3) == (texts, twins)


def test_forks_do_not_disturb_the_draws_of_the_context(run: Run) -> None:
    async def program(forks: int) -> Any:
        context = filled()
        branches = [context.fork() for _ in range(forks)]
        await asyncio.gather(*(branch.generate_until(max_tokens=4) for branch in branches))
        return await context.generate_until(temperature=1.2, max_tokens=12, stop_tokens=[])

    assert run(lambda: program(3), seed=9) == run(lambda: program(0), seed=9)


def test_join_appends_what_the_forks_have_added(run: Run) -> None:
    async def program() -> Any:
        context = filled()
        forks = [context.fork() for _ in range(2)]
        for fork, ending in zip(forks, ENDINGS, strict=False):
            fork.fill(ending)
        tasks = [asyncio.create_task(fork.generate_until(max_tokens=4, stop_tokens=[])) for fork in forks]
        texts = await context.join(*forks)
        assert all(task.done() for task in tasks)
        return texts, context.tokens, await context.generate_until(max_tokens=5, stop_tokens=[])

    texts, tokens, rest = run(program)
    assert texts == [ending + continued(ending, 4) for ending in ENDINGS[:2]]
    assert TOKENIZER.decode(tokens) == LONG + "".join(texts)
    assert rest == TOKENIZER.decode(tiny_oracle.greedy(tokens, 5))


def test_joining_one_fork_forwards_nothing_again() -> None:
    async def program() -> Any:
        context = filled()
        fork = context.fork()
        await fork.generate_until(max_tokens=20, stop_tokens=[])
        before = run.thread.engine.statistics.rows
        await context.join(fork)
        await context.generate_until(max_tokens=1)
        return run.thread.engine.statistics.rows - before, context.tokens, fork.tokens

    with native(speculation_depth=0) as run:
        rows, tokens, forks = run(program)
    assert rows == 1
    assert tokens[:-1] == forks


def test_join_raises_what_a_fork_failed_with(run: Run) -> None:
    async def program() -> Any:
        context = filled()
        fork = context.fork()
        task = asyncio.create_task(fork.generate_until(until=lambda answer: 1 / 0))
        with pytest.raises(ZeroDivisionError):
            await context.join(fork)
        with pytest.raises(ZeroDivisionError):
            await task
        return context.tokens

    assert run(program) == PROMPT


def test_what_forks_have_in_common_fails_for_each_and_can_be_tried_again(run: Run) -> None:
    async def program() -> Any:
        context = filled()
        run.thread.backend.fail_next = ours.DeviceLost("gone")  # type: ignore[attr-defined]
        forks = [context.fork() for _ in range(3)]
        told = await asyncio.gather(*(fork.generate_until(max_tokens=3) for fork in forks), return_exceptions=True)
        return told, await asyncio.gather(*(one.generate_until(max_tokens=3) for one in (context, *forks)))

    told, texts = run(program)
    assert [str(error) for error in told] == ["gone"] * 3
    assert all(isinstance(error, errors.DeviceLost) for error in told)
    # The context itself hears of it as well, and then it works.
    assert texts == [TOKENIZER.decode(tiny_oracle.greedy(PROMPT, 3))] * 4


def test_a_fork_that_is_cancelled_while_the_common_part_runs_does_not_stop_the_others(run: Run) -> None:
    async def program() -> Any:
        context = filled()
        forks = [context.fork() for _ in range(3)]
        tasks = [asyncio.create_task(fork.generate_until(max_tokens=4)) for fork in forks]
        await asyncio.sleep(0)
        tasks[1].cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        return found, await forks[1].generate_until(max_tokens=4)

    found, again = run(program)
    text = TOKENIZER.decode(tiny_oracle.greedy(PROMPT, 4))
    assert (found[0], found[2], again) == (text, text, text)
    assert isinstance(found[1], asyncio.CancelledError)


def test_pages_go_back_with_the_contexts() -> None:
    async def program() -> Any:
        context = filled()
        await four(context, count=2 * PAGE)
        gc.collect()
        context.close()
        engine = run.thread.engine
        return run.thread.ask(lambda: engine.pool.free + engine.prefixes.reclaimable), engine.pool.total

    with native(speculation_depth=0) as run:
        free, total = run(program)
    assert free == total


def test_a_context_that_is_changed_under_a_pass_is_not_believed_to_hold_what_the_pass_wrote(run: Run) -> None:
    async def program() -> Any:
        context = filled()
        task = asyncio.create_task(context.entropy())
        await asyncio.sleep(0)
        context.truncate(9)
        context.fill("stop the hello yes no 1 2 3 the in")
        await task
        return context.tokens, await context.generate_until(max_tokens=5, stop_tokens=[])

    tokens, text = run(program)
    assert len(tokens) > 20
    assert text == TOKENIZER.decode(tiny_oracle.greedy(tokens, 5))


def test_a_join_under_a_pass_keeps_what_it_joined(run: Run) -> None:
    async def program() -> Any:
        context = filled()
        fork = context.fork()
        await fork.generate_until(max_tokens=6, stop_tokens=[])
        task = asyncio.create_task(context.entropy())
        await asyncio.sleep(0)
        await context.join(fork)
        await task
        return context.tokens, await context.generate_until(max_tokens=5, stop_tokens=[])

    tokens, text = run(program)
    assert text == TOKENIZER.decode(tiny_oracle.greedy(tokens, 5))
