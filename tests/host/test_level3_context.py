"""Contexts of the support library on a real engine over the tiny model: what they generate is what whole passes give."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support import tiny_oracle
from tests.support.native_guest import native
from tests.support.tiny import SPEC
from tests.support.tiny_text import TinyTokenizer, TinyTurns

from inferlet import Context, Sampler, errors, model  # isort: skip

TOKENIZER, TURNS = TinyTokenizer(), TinyTurns()
PROMPT = [1, *TOKENIZER.encode("the one.")]
STOPS = frozenset({2})
Run = Callable[..., Any]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    with native(template=True, rows=64, sequences=16) as runner:
        yield runner


def text_of(tokens: list[int]) -> str:
    return TOKENIZER.decode(tokens)


def filled(text: str = "the one.") -> Context:
    context = Context()
    context.fill(text)
    return context


def test_three_lines_are_a_whole_program(run: Run) -> None:
    async def program() -> str:
        context = Context(model)
        context.fill("the one.")
        return await context.generate_until(max_tokens=10)

    assert run(program) == text_of(tiny_oracle.greedy(PROMPT, 10))


def test_pieces_add_up_to_the_text_and_the_context_goes_on_from_there(run: Run) -> None:
    async def program() -> Any:
        context = filled()
        pieces = [piece async for piece in context.generate(max_tokens=14)]
        first = context.last
        again = await context.generate_until(max_tokens=5)
        return pieces, first, again, context.tokens, context.text

    pieces, first, again, tokens, text = run(program)
    expected = tiny_oracle.greedy(PROMPT, 19)
    assert "".join(pieces) == first.text == text_of(expected[:14])
    assert all(pieces)
    assert (first.tokens, first.finish_reason) == (expected[:14], "length")
    assert (first.usage.prompt, first.usage.generated) == (len(PROMPT), 14)
    assert again == text_of(expected[14:])
    assert tokens == PROMPT + expected
    assert text == text_of(tokens)


def test_a_context_grows_page_by_page_over_a_long_generation(run: Run) -> None:
    async def program() -> Any:
        context = filled()
        await context.generate_until(max_tokens=120, stop_tokens=[])
        return context.last.tokens

    assert run(program) == tiny_oracle.greedy(PROMPT, 120)


@pytest.mark.parametrize("span", range(1, 8))
@pytest.mark.parametrize("start", [0, 3, 7])
def test_a_stop_string_of_any_length_ends_the_text_before_it(run: Run, start: int, span: int) -> None:
    made = tiny_oracle.greedy(PROMPT, 24)
    stop = text_of(made[start : start + span])
    text = text_of(made)
    before = text[: text.index(stop)]

    async def program() -> Any:
        context = filled()
        pieces = [piece async for piece in context.generate(max_tokens=24, stop=["never", stop])]
        told = (context.last.finish_reason, context.last.stopped_by)
        tokens = context.tokens
        return pieces, told, tokens, await context.generate_until(max_tokens=4, stop_tokens=[])

    pieces, told, tokens, rest = run(program)
    assert "".join(pieces) == before
    assert told == ("stop", stop)
    assert text_of(tokens) == "the one." + before
    assert rest == text_of(tiny_oracle.greedy(tokens, 4))


def test_a_stop_string_that_begins_inside_a_token_leaves_the_text_before_it(run: Run) -> None:
    made = tiny_oracle.greedy(PROMPT, 12)
    text = text_of(made)
    assert "thew" in text
    before = text[: text.index("hew")]

    async def program() -> Any:
        context = filled()
        found = await context.generate_until(max_tokens=12, stop="hew")
        return found, context.tokens, await context.generate_until(max_tokens=3, stop_tokens=[])

    found, tokens, rest = run(program)
    assert found == before
    assert text_of(tokens) == "the one." + before
    assert rest == text_of(tiny_oracle.greedy(tokens, 3))


def test_generation_ends_at_a_stop_token_which_is_no_part_of_it(run: Run) -> None:
    prompt = [1, *TOKENIZER.encode("good")]
    made = tiny_oracle.greedy(prompt, 24)
    until_eos = made[: made.index(2)]
    other = made[1]

    async def program() -> Any:
        told = []
        for options in ({}, {"stop": "<eos>", "stop_tokens": []}, {"stop_tokens": [other]}, {"stop_tokens": []}):
            context = filled("good")
            await context.generate_until(max_tokens=24, **options)
            last = context.last
            told.append((last.tokens, last.finish_reason, last.stopped_by, last.usage.generated, context.tokens))
        return told

    own, spelt, chosen, none = run(program)
    assert own == (until_eos, "stop", 2, len(until_eos) + 1, prompt + until_eos)
    assert spelt == own
    assert chosen == (made[:1], "stop", other, 2, prompt + made[:1])
    assert none == (made, "length", None, 24, prompt + made)


def test_a_program_s_own_predicate_ends_a_generation(run: Run) -> None:
    async def program() -> Any:
        context = filled()
        text = await context.generate_until(until=lambda answer: len(answer.text) > 5)
        return text, context.last.finish_reason

    text, reason = run(program)
    assert reason == "until"
    made = tiny_oracle.greedy(PROMPT, 24)
    shortest = next(count for count in range(25) if len(text_of(made[:count])) > 5)
    assert text == text_of(made[:shortest])


def test_no_tokens_are_asked_for_and_none_is_made(run: Run) -> None:
    async def program() -> Any:
        context = filled()
        return await context.generate_until(max_tokens=0), context.last.finish_reason, context.tokens

    assert run(program) == ("", "length", PROMPT)


def test_log_probabilities_are_those_of_the_model(run: Run) -> None:
    async def program() -> Any:
        context = filled()
        await context.generate_until(max_tokens=6, logprobs=3)
        return context.last

    last = run(program)
    assert [entry.token for entry in last.logprobs] == last.tokens
    for count, entry in enumerate(last.logprobs):
        row = tiny_oracle.logprobs_after((*PROMPT, *last.tokens[:count]))
        best = sorted(range(len(row)), key=lambda token: -row[token])[:3]
        assert entry.logprob == pytest.approx(row[entry.token], abs=1e-4)
        assert [token for token, _ in entry.alternatives] == best
        assert [value for _, value in entry.alternatives] == pytest.approx([row[token] for token in best], abs=1e-4)


def test_a_generation_at_the_end_of_what_the_model_can_read_says_so(run: Run) -> None:
    async def program() -> Any:
        context = filled()
        context.fill([43] * (SPEC.context - 3 - len(PROMPT)))
        await context.generate_until(stop_tokens=[])
        told = (len(context.last.tokens), context.last.finish_reason, len(context.tokens))
        with pytest.raises(
            errors.ContextOverflow, match=f"{SPEC.context + 1} tokens long, and tiny can read {SPEC.context}"
        ):
            await context.generate_until(max_tokens=1)
        with pytest.raises(errors.ContextOverflow, match="6 too many"):
            context.fill([5] * 5)
        return told, len(context.tokens)

    assert run(program) == ((4, "context", SPEC.context + 1), SPEC.context + 1)


def test_a_stream_may_be_left_and_the_context_goes_on(run: Run) -> None:
    async def program() -> Any:
        context = filled()
        async for _ in context.generate(max_tokens=30):
            if len(context.last.text) > 4:
                break
        kept = len(context.last.tokens)
        return kept, await context.generate_until(max_tokens=12 - kept)

    kept, rest = run(program)
    made = tiny_oracle.greedy(PROMPT, 12)
    assert 0 < kept < 12
    assert rest == text_of(made[kept:])


def test_a_generation_that_is_cancelled_leaves_a_context_that_works(run: Run) -> None:
    async def program() -> Any:
        context = filled()
        task = asyncio.create_task(context.generate_until(max_tokens=200, stop_tokens=[]))
        while len(context.tokens) < len(PROMPT) + 5:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        made = context.tokens
        return made, await context.generate_until(max_tokens=5, stop_tokens=[])

    made, rest = run(program)
    assert made == PROMPT + tiny_oracle.greedy(PROMPT, len(made) - len(PROMPT))
    assert rest == text_of(tiny_oracle.greedy(made, 5))


def test_a_truncated_context_is_as_if_the_rest_had_never_been(run: Run) -> None:
    async def program() -> Any:
        context = filled()
        await context.generate_until(max_tokens=20, stop_tokens=[])
        context.truncate(len(PROMPT) - 2)
        context.fill("hello")
        return context.tokens, await context.generate_until(max_tokens=6, stop_tokens=[])

    tokens, text = run(program)
    assert tokens == [*PROMPT[:-2], *TOKENIZER.encode("hello")]
    assert text == text_of(tiny_oracle.greedy(tokens, 6))


def test_a_conversation_is_made_of_the_template_s_turns(run: Run) -> None:
    async def program() -> Any:
        context = Context()
        context.fill_system("be good")
        context.fill_user("hello")
        answer = await context.generate_until(max_tokens=4, stop_tokens=[])
        made = context.last.tokens
        context.fill_user("more")
        context.cue()
        context.fill("so")
        other = await context.generate_until(max_tokens=3, stop_tokens=[])
        return answer, made, other, context.tokens

    answer, made, other, tokens = run(program)
    asked = [1, *TURNS.system("be good"), *TURNS.user("hello"), *TURNS.cue()]
    assert made == tiny_oracle.greedy(asked, 4)
    assert answer == text_of(made)
    more = [*asked, *made, *TURNS.seal(), *TURNS.user("more"), *TURNS.cue(), *TOKENIZER.encode("so")]
    assert tokens[:-3] == more
    assert other == text_of(tokens[-3:]) == text_of(tiny_oracle.greedy(more, 3))


def test_a_conversation_without_a_system_message_begins_with_what_stands_in_its_place(run: Run) -> None:
    async def program() -> Any:
        context = Context()
        context.fill_user("hello")
        context.fill_assistant("hi")
        context.fill_user("so")
        context.cue()
        context.seal()
        context.seal()
        return context.tokens

    turns = [*TURNS.user("hello"), *TURNS.assistant("hi"), *TURNS.user("so"), *TURNS.cue(), *TURNS.seal()]
    assert run(program) == [1, *TURNS.preamble(), *turns]


def test_draws_are_the_program_s_seed_s_and_repeat(run: Run) -> None:
    async def program() -> Any:
        contexts = [filled() for _ in range(3)]
        texts = [await context.generate_until(temperature=1.0, max_tokens=12, stop_tokens=[]) for context in contexts]
        own = filled()
        return texts, await Context.generate_until(own, Sampler(), max_tokens=12, stop_tokens=[])

    texts, _ = run(program, seed=7)
    assert len(set(texts)) == 3
    assert run(program, seed=7)[0] == texts
    assert run(program, seed=8)[0] != texts

    async def seeded() -> Any:
        contexts = [Context(seed=123) for _ in range(2)]
        for context in contexts:
            context.fill("the one.")
        return await asyncio.gather(*(c.generate_until(temperature=1.0, max_tokens=12) for c in contexts))

    first, second = run(seeded, seed=1)
    assert first == second == run(seeded, seed=2)[0]


@pytest.mark.parametrize("options", [{}, {"temperature": 1.0, "top_p": 0.9, "logprobs": 2}])
def test_the_runtime_can_run_ahead_of_a_generation_and_the_tokens_are_the_same(options: dict[str, Any]) -> None:
    async def program() -> Any:
        context = filled()
        await context.generate_until(max_tokens=40, stop_tokens=[], **options)
        return context.last.tokens

    with native(speculation_depth=1) as run:
        ahead = run(program)
        hits = run.thread.engine.calls.ahead.hits
    with native(speculation_depth=0) as run:
        assert run(program) == ahead
    # All but the prompt's pass, the one after it, and now and then one that was asked for before it was foreseen.
    assert hits >= 30
