"""Bad use of contexts, and things that go wrong under them: a typed error each time, and a context that still works."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pie_edge import errors as ours
from tests.support import tiny_oracle
from tests.support.native_guest import native
from tests.support.tiny_text import TinyTokenizer

from inferlet import Context, Sampler, chat, errors  # isort: skip

TOKENIZER = TinyTokenizer()
PROMPT = [1, *TOKENIZER.encode("the one.")]
Run = Callable[..., Any]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    with native(rows=64, sequences=16) as runner:
        yield runner


def text_of(tokens: list[int]) -> str:
    return TOKENIZER.decode(tokens)


def filled() -> Context:
    context = Context()
    context.fill("the one.")
    return context


REFUSED: dict[str, tuple[Callable[[Context], Any], type[Exception], str]] = {
    "another model": (lambda c: Context(chat), errors.UsageError, r"write Context\(model\)"),
    "a token that isn't there": (lambda c: c.fill([5, 64]), errors.InvalidHandle, "64 is no token"),
    "text among tokens": (lambda c: c.fill(["a"]), errors.InvalidHandle, "'a' is no token"),
    "an unknown setting": (lambda c: c.generate(heat=2), errors.UsageError, "takes no heat"),
    "a sampler and settings": (lambda c: c.generate(Sampler(), top_k=2), errors.UsageError, "top_k beside it"),
    "what is no sampler": (lambda c: c.generate("greedy"), errors.UsageError, "'greedy' is no sampler"),
    "a negative limit": (lambda c: c.generate(max_tokens=-1), errors.UsageError, "max_tokens is -1"),
    "an empty stop string": (lambda c: c.generate(stop=[""]), errors.UsageError, "can't stop a generation"),
    "truncating to more": (lambda c: c.truncate(99), errors.InvalidHandle, "can't be truncated to 99"),
    "what wasn't generated": (lambda c: c.last, errors.UsageError, "hasn't generated anything"),
    "more than the model can read": (lambda c: c.fill([5] * 300), errors.ContextOverflow, "48 too many"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_use_is_refused_and_changes_nothing(run: Run, case: str) -> None:
    action, kind, said = REFUSED[case]

    async def program() -> Any:
        context = filled()
        with pytest.raises(kind, match=said):
            action(context)
        return context.tokens, await context.generate_until(max_tokens=3)

    assert run(program) == (PROMPT, text_of(tiny_oracle.greedy(PROMPT, 3)))


def test_a_closed_context_is_refused(run: Run) -> None:
    async def program() -> None:
        with filled() as context:
            await context.generate_until(max_tokens=2)
        with pytest.raises(errors.UsageError, match="was closed"):
            await context.generate_until(max_tokens=2)
        with pytest.raises(errors.UsageError, match="was closed"):
            context.fork()

    run(program)


def test_an_empty_context_has_no_logits(run: Run) -> None:
    async def program() -> None:
        context = Context()
        context.truncate(0)
        with pytest.raises(errors.UsageError, match="the context is empty"):
            await context.generate_until(max_tokens=2)

    run(program)


def test_two_generations_at_once_are_refused_and_the_first_goes_on(run: Run) -> None:
    async def program() -> Any:
        context = filled()
        return await asyncio.gather(
            context.generate_until(max_tokens=6), context.generate_until(max_tokens=6), return_exceptions=True
        )

    first, second = run(program)
    assert first == text_of(tiny_oracle.greedy(PROMPT, 6))
    assert isinstance(second, errors.UsageError)
    assert "fork it" in str(second)


def test_filling_while_it_generates_is_told(run: Run) -> None:
    async def program() -> None:
        context = filled()
        generation = context.generate(max_tokens=9)
        await anext(generation)
        context.fill("x")
        with pytest.raises(errors.UsageError, match="was changed"):
            await anext(generation)

    run(program)


def test_a_device_that_fails_is_told_and_the_context_can_be_used_again() -> None:
    async def program() -> Any:
        context = filled()
        await context.generate_until(max_tokens=3)
        run.thread.backend.fail_next = ours.DeviceLost("gone")
        with pytest.raises(errors.DeviceLost, match="gone"):
            await context.generate_until(max_tokens=9)
        return context.tokens, await context.generate_until(max_tokens=4)

    # Without run-ahead: a pass that nobody asked for yet may fail unnoticed.
    with native(speculation_depth=0) as run:
        tokens, text = run(program)
    assert tokens == PROMPT + tiny_oracle.greedy(PROMPT, 3)
    assert text == text_of(tiny_oracle.greedy(PROMPT, 7)[3:])


def test_a_model_without_a_template_refuses_turns_and_still_continues_text() -> None:
    async def program() -> Any:
        context = Context()
        for turn in (context.fill_user, context.fill_system, context.fill_assistant):
            with pytest.raises(errors.TemplateError):
                turn("x")
        context.fill("the one.")
        return context.tokens, await context.generate_until(max_tokens=2)

    with native(template=False) as run:
        assert run(program) == (PROMPT, text_of(tiny_oracle.greedy(PROMPT, 2)))
