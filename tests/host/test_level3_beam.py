"""Beam search on forks, against beam search by whole passes and against trying everything."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support import tiny_oracle
from tests.support.native_guest import native
from tests.support.tiny_text import TinyTokenizer

from inferlet import Context, beam_search, errors  # isort: skip

TOKENIZER = TinyTokenizer()
TEXT = "hello good"
PROMPT = (1, *TOKENIZER.encode(TEXT))
VOCABULARY = tiny_oracle.VOCABULARY
Run = Callable[..., Any]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    with native(rows=64, sequences=16, kv_memory=1 << 22) as runner:
        yield runner


def filled() -> Context:
    context = Context()
    context.fill(TEXT)
    return context


def logprob_of(tokens: tuple[int, ...]) -> float:
    """Of a continuation of the prompt, its stop token included."""
    return sum(tiny_oracle.logprobs_after((*PROMPT, *tokens[:place]))[token] for place, token in enumerate(tokens))


def by_whole_passes(width: int, length: int, penalty: float, stops: set[int]) -> list[tuple[int, ...]]:
    """Beam search that forwards every continuation from its beginning, and never stops early."""
    live, done = [()], []
    for count in range(1, length + 1):
        steps = [(*one, token) for one in live for token in range(VOCABULARY)]
        steps.sort(key=logprob_of, reverse=True)
        live = []
        for one in steps:
            if len(live) == width:
                break
            if one[-1] in stops:
                done.append((logprob_of(one) / count**penalty, one))
            else:
                live.append(one)
    done += [(logprob_of(one) / length**penalty, one) for one in live]
    return [one for _, one in sorted(done, reverse=True)[:width]]


def searched(run: Run, **options: Any) -> list[Any]:
    async def program() -> Any:
        context = filled()
        beams = await beam_search(context, **options)
        assert context.tokens == list(PROMPT)
        return beams

    return run(program)


@pytest.mark.parametrize("penalty", [0.0, 1.0, 2.0])
@pytest.mark.parametrize(("width", "stops"), [(1, set()), (3, set()), (4, {2}), (3, {2, 43, 50, 39})])
def test_the_beams_are_those_of_a_search_without_cache_or_early_end(
    run: Run, width: int, stops: set[int], penalty: float
) -> None:
    beams = searched(run, width=width, max_tokens=5, length_penalty=penalty, stop_tokens=stops)
    expected = by_whole_passes(width, 5, penalty, stops)
    for beam, tokens in zip(beams, expected, strict=True):
        ended = tokens[-1] in stops
        assert beam.tokens == list(tokens[:-1] if ended else tokens)
        assert beam.finish_reason == ("stop" if ended else "length")
        assert beam.logprob == pytest.approx(logprob_of(tokens), abs=1e-3)
        assert beam.score == pytest.approx(logprob_of(tokens) / len(tokens) ** penalty, abs=1e-3)
        assert beam.text == TOKENIZER.decode(beam.tokens)


def test_a_beam_as_wide_as_the_vocabulary_finds_the_best_of_all(run: Run) -> None:
    beams = searched(run, width=VOCABULARY, max_tokens=2, stop_tokens=[])
    everything = itertools.product(range(VOCABULARY), repeat=2)
    best = sorted(everything, key=logprob_of, reverse=True)[:VOCABULARY]
    assert beams[0].tokens == list(best[0])
    assert [beam.logprob for beam in beams] == pytest.approx([logprob_of(one) for one in best], abs=1e-3)


def test_one_beam_is_greedy_generation(run: Run) -> None:
    beams = searched(run, width=1, max_tokens=9, stop_tokens=[])
    assert [beam.tokens for beam in beams] == [tiny_oracle.greedy(list(PROMPT), 9)]


def test_a_beam_s_context_goes_on_from_its_end(run: Run) -> None:
    async def program() -> Any:
        beams = await beam_search(filled(), width=3, max_tokens=4, stop_tokens=[43])
        return [
            (beam.tokens, beam.context.tokens, await beam.context.generate_until(max_tokens=3, stop_tokens=[]))
            for beam in beams
        ]

    for tokens, context, rest in run(program):
        assert context == [*PROMPT, *tokens]
        assert rest == TOKENIZER.decode(tiny_oracle.greedy(context, 3))


def test_beams_share_steps_and_pages_and_give_them_back() -> None:
    async def program() -> Any:
        context = filled()
        await beam_search(context, width=6, max_tokens=20, stop_tokens=[])
        gc.collect()
        context.close()
        engine = run.thread.engine
        return run.thread.ask(lambda: engine.pool.free + engine.prefixes.reclaimable), engine.pool.total

    with native(rows=64, sequences=16) as run:
        free, total = run(program)
        statistics = run.thread.engine.statistics
    assert free == total
    assert statistics.largest_step == 6
    # Each step forwards one token a beam; the first is the prompt.
    assert statistics.rows == len(PROMPT) + 19 * 6


@pytest.mark.parametrize("options", [{"width": 0, "max_tokens": 3}, {"max_tokens": 0}])
def test_a_search_for_nothing_is_refused(run: Run, options: dict[str, int]) -> None:
    async def program() -> None:
        with pytest.raises(errors.UsageError, match="both must be 1 or more"):
            await beam_search(filled(), **options)

    run(program)
