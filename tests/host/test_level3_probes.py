"""Probes of the support library: what they tell is what whole passes of the reference give, and nothing is appended."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support import tiny_oracle
from tests.support.native_guest import native
from tests.support.tiny_text import TinyTokenizer

from inferlet import Context, errors  # isort: skip
from inferlet.eta import intrinsics, reduce_max  # isort: skip

TOKENIZER = TinyTokenizer()
PROMPT = [1, *TOKENIZER.encode("the one. stop")]
Run = Callable[..., Any]
CANDIDATES: list[Any] = [" yes", " no", "stop the hello", 5, [7, 8], "a", [63], "END no yes"]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    with native(rows=64, sequences=16) as runner:
        yield runner


def filled() -> Context:
    context = Context()
    context.fill("the one. stop")
    return context


def row() -> list[float]:
    return tiny_oracle.logprobs_after(tuple(PROMPT))


def sequence_logprob(candidate: Any) -> float:
    tokens = (
        TOKENIZER.encode(candidate)
        if isinstance(candidate, str)
        else [candidate]
        if isinstance(candidate, int)
        else candidate
    )
    rows = tiny_oracle.logprobs_of_all((*PROMPT, *tokens))
    return sum(float(rows[len(PROMPT) - 1 + place][token]) for place, token in enumerate(tokens))


@pytest.mark.parametrize("generated", [0, 3])
def test_candidates_get_the_log_probability_of_all_their_tokens(run: Run, generated: int) -> None:
    async def program() -> Any:
        context = filled()
        found = await context.score(CANDIDATES)
        again = await context.score(CANDIDATES[::-1])
        return found, again[::-1], context.tokens, await context.generate_until(max_tokens=5)

    found, again, tokens, text = run(program)
    assert found == pytest.approx([sequence_logprob(candidate) for candidate in CANDIDATES], abs=2e-4)
    assert again == pytest.approx(found, abs=1e-5)
    assert tokens == PROMPT
    assert text == TOKENIZER.decode(tiny_oracle.greedy(PROMPT, 5))


def test_candidates_are_forwarded_side_by_side_after_one_prompt() -> None:
    async def program() -> None:
        await filled().score(["stop the", "END no", "the stop", " yes"])

    with native(rows=64, sequences=16) as run:
        run(program)
        statistics = run.thread.engine.statistics
    # The one that has a single token may have a step of its own: what a prompt's rows cost is told from it, once.
    assert statistics.largest_step >= 3
    # Of a candidate its last token isn't forwarded, but the prompt's last one is, for each and for the single tokens.
    assert statistics.rows == len(PROMPT) - 1 + 1 + 3 + 2 + 3


def test_entropy_and_the_likeliest_tokens_are_those_of_the_model(run: Run) -> None:
    async def program() -> Any:
        context = filled()
        return await asyncio.gather(context.entropy(), context.likeliest(5), context.likeliest(1000))

    entropy, five, all_of_them = run(program)
    expected = row()
    assert entropy == pytest.approx(-sum(math.exp(x) * x for x in expected), abs=1e-4)
    order = sorted(range(len(expected)), key=lambda token: -expected[token])
    assert [token for token, _ in five] == order[:5]
    assert [value for _, value in five] == pytest.approx([expected[token] for token in order[:5]], abs=1e-4)
    assert len(all_of_them) == len(expected)


def test_raw_logits_are_log_probabilities_up_to_one_number(run: Run) -> None:
    async def program() -> Any:
        context = filled()
        return await context.logits([3, 50, 63]), await context.logits([]), await context.score([3, 50, 63])

    logits, none, logprobs = run(program)
    assert none == []
    assert logprobs == pytest.approx([row()[token] for token in (3, 50, 63)], abs=1e-4)
    shifts = [logit - logprob for logit, logprob in zip(logits, logprobs, strict=True)]
    assert shifts == pytest.approx([shifts[0]] * 3, abs=1e-4)
    assert abs(shifts[0]) > 0.1


def test_any_epilogue_can_read_the_last_logits(run: Run) -> None:
    async def program() -> Any:
        context = filled()
        best = await context.read(lambda: {"best": reduce_max(intrinsics.logits()), "at": intrinsics.position()})
        return best, await context.logits([tiny_oracle.best_after(PROMPT)])

    best, logits = run(program)
    assert best["best"] == pytest.approx(logits[0], rel=1e-5)
    assert best["at"] == len(PROMPT) - 1


REFUSED: dict[str, tuple[Callable[[Context], Any], type[Exception], str]] = {
    "a candidate of nothing": (lambda c: c.score(["a", ""]), errors.UsageError, "'' has no tokens"),
    "a token that isn't there": (lambda c: c.score([64]), errors.InvalidHandle, "64 is no token"),
    "logits of a token that isn't there": (lambda c: c.logits([-1]), errors.InvalidHandle, "-1 is no token"),
    "no likeliest tokens": (lambda c: c.likeliest(0), errors.UsageError, "ask for 1 or more"),
    "an epilogue with an error": (
        lambda c: c.read(lambda: intrinsics.logits() & 1),
        errors.EpilogueError,
        "test_level3_probes.py",
    ),
    "a candidate beyond what the model can read": (
        lambda c: c.score([[5] * 300]),
        errors.ContextOverflow,
        "too many",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_use_is_refused(run: Run, case: str) -> None:
    action, kind, said = REFUSED[case]

    async def program() -> Any:
        context = filled()
        with pytest.raises(kind, match=said):
            await action(context)
        return await context.generate_until(max_tokens=2)

    assert run(program) == TOKENIZER.decode(tiny_oracle.greedy(PROMPT, 2))


@pytest.mark.parametrize("count", [1, 2, 3, 31, 32, 33, 70])
def test_tokens_that_are_filled_in_are_scored_each_by_what_comes_before_it(run: Run, count: int) -> None:
    tokens = [1, *(4 + 7 * number % 60 for number in range(count - 1))]

    async def program() -> Any:
        context = Context()
        context.truncate(0)
        half = count // 2
        found = [*await context.fill_scored(tokens[:half], 2), *await context.fill_scored(tokens[half:], 2)]
        return found, context.tokens, await context.likeliest(1)

    found, kept, (after,) = run(program)
    rows = tiny_oracle.logprobs_of_all(tuple(tokens))
    assert kept == tokens == [entry.token for entry in found]
    assert (found[0].logprob, found[0].alternatives) == (None, ())
    for place, entry in enumerate(found[1:]):
        best = sorted(range(len(rows[place])), key=lambda token: -rows[place][token])[:2]
        assert entry.logprob == pytest.approx(float(rows[place][entry.token]), abs=1e-4)
        assert [token for token, _ in entry.alternatives] == best
    assert after[1] == pytest.approx(float(max(rows[-1])), abs=1e-4)
