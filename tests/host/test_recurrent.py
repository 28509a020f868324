"""Programs on models with recurrent state: what they are told, what is refused, and that contexts work as on any model."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.host.hosting import Ended
from tests.host.test_introspection import SNAPKV
from tests.host.tiny_hosting import run_tiny
from tests.support.native_guest import native
from tests.support.oracle_run import log_probabilities
from tests.support.tiny_hybrid import CONVOLVED, DELTA, loaded, open_hybrid
from tests.support.tiny_text import TinyTokenizer

from inferlet import Context, beam_search, model  # isort: skip

TOKENIZER = TinyTokenizer()
Run = Callable[..., Any]
LONG = "the one. stop the hello yes no 1 2 3 the ingerss a b c d e f g h i j k"
PROMPT = [1, *TOKENIZER.encode(LONG)]


@functools.cache
def _row(tokens: tuple[int, ...], spec: Any = DELTA) -> Any:
    return log_probabilities(loaded(spec), list(tokens))[-1]


def greedy(tokens: list[int], count: int, spec: Any = DELTA) -> list[int]:
    made: list[int] = []
    while len(made) < count:
        made.append(int(_row((*tokens, *made), spec).argmax()))
    return made


def run(body: str, **options: Any) -> Ended:
    lines = "\n".join("    " + line for line in body.strip().splitlines())
    return run_tiny(f"{HEAD}\nasync def main(input):\n{lines}\n", **{"opening": open_hybrid, **options})


HEAD = f"""
from inferlet import Context, errors, model, traits
from inferlet.eta import ForwardPass, Pipeline, WorkingSet, intrinsics, reduce_argmax

PROMPT = {PROMPT}

async def best(context, pipe, tokens, start, mask=None):
    step = ForwardPass()
    step.embed(tokens)
    step.bind_state(context, context.geometry(start, start + len(tokens)))
    if mask is not None:
        step.mask(mask)
    out = step.epilogue(lambda: reduce_argmax(intrinsics.logits()))
    pipe.submit(step)
    return await out
"""


def test_a_program_is_told_that_its_model_is_recurrent_and_what_that_takes_away() -> None:
    ended = run("""
told = [model.is_recurrent(), model.reversible_tokens(), sorted(traits.available_traits()), model.with_traits("forward")]
try:
    traits.alloc_kvpage(1)
except errors.Unsupported as error:
    told.append(str(error))
return told
""")
    assert ended.error is None, ended.traceback
    recurrent, reversible, traits, with_forward, refused = ended.result
    assert (recurrent, reversible, traits, with_forward) == (True, 8, ["introspective", "tokenize"], [])
    assert refused.startswith(
        "program asks for single KV pages or embeds, and tiny-hybrid has recurrent state, which no page"
    )


def test_a_program_on_keys_and_values_alone_is_told_so_too() -> None:
    with native() as runner:

        async def program() -> Any:
            return model.is_recurrent(), model.reversible_tokens(), model.context_size()

        assert runner(program) == (False, 256, 256)


def test_what_is_for_attention_alone_is_refused_at_the_line_that_asked() -> None:
    ended = run("""
context, pipe = WorkingSet(tokens=64), Pipeline()
await best(context, pipe, PROMPT[:30], 0)
told = []
for trick in (
    lambda: context.hide(2, [True]),
    lambda: context.slice(1, 1),
    lambda: context.discard(0, 1),
):
    try:
        trick()
    except errors.Unsupported as error:
        told.append(str(error).partition(":")[0])
try:
    await best(context, pipe, PROMPT[30:31], 30, [[True] * 31])
except errors.Unsupported as error:
    told.append(str(error).partition(":")[0])
try:
    await best(context, pipe, PROMPT[10:11], 10)
except errors.Irreversible as error:
    told.append(str(error).partition(",")[0])
return told, await best(context, pipe, PROMPT[30:31], 30)
""")
    assert ended.error is None, ended.traceback
    assert ended.result == [
        [
            "program masks tokens",
            "program cuts a context's pages from 1 on out of it",
            "program discards pages 0…1 before others",
            "program gave masks for a pass",
            "program goes on from token 10 of 30",
        ],
        greedy(PROMPT[:31], 1)[0],
    ]


def test_a_program_that_drops_pages_by_what_was_attended_to_ends_with_the_reason() -> None:
    ended = run_tiny(SNAPKV, {"prompt": LONG, "max_tokens": 4, "keep": 1}, opening=open_hybrid)
    assert ended.error is not None
    assert "that is for attention alone, and tiny-hybrid has recurrent state" in str(ended.error)


def test_drafts_of_as_many_tokens_as_are_told_are_rejected_and_replaced() -> None:
    ended = run("""
context, pipe, tokens = WorkingSet(tokens=128), Pipeline(), PROMPT[:20]
token, made = await best(context, pipe, tokens, 0), []
for turn in range(6):
    drafts = [(turn * 7 + n) % 60 for n in range(model.reversible_tokens())]
    await best(context, pipe, [token, *drafts], len(tokens))
    tokens, made = [*tokens, token], [*made, token]
    token = await best(context, pipe, tokens[-1:], len(tokens) - 1)
return made
""")
    assert ended.error is None, ended.traceback
    assert ended.result == greedy(PROMPT[:20], 6)


@pytest.mark.parametrize("spec", [DELTA, CONVOLVED], ids=["delta", "convolutions"])
def test_a_context_is_kept_and_loaded_with_its_state(spec: Any, tmp_path: Path) -> None:
    def ended(body: str, model: Any = spec) -> Ended:
        return run(body, data=tmp_path, opening=functools.partial(open_hybrid, spec=model))

    saved = ended("ctx = Context()\nctx.fill(PROMPT[1:])\nawait ctx.save('it')\nawait ctx.save('again')")
    assert saved.error is None, saved.traceback
    load = "ctx = await Context.load('it')\nreturn await ctx.generate_until(max_tokens=6, stop_tokens=[])"
    again = ended(load)
    assert again.error is None, again.traceback
    assert again.result == TOKENIZER.decode(greedy(PROMPT, 6, spec))
    other = ended(load, CONVOLVED if spec is DELTA else DELTA)
    assert "it is of the model 'tiny-hybrid'" in str(other.error)


# ---- contexts, natively


@pytest.fixture(scope="module")
def hybrid() -> Iterator[Run]:
    with native(opening=open_hybrid, rows=64, sequences=16) as runner:
        yield runner


def filled() -> Context:
    context = Context()
    context.fill(LONG)
    return context


def text(tokens: list[int]) -> str:
    return TOKENIZER.decode(tokens)


def test_contexts_generate_and_fork_as_whole_passes_say(hybrid: Run) -> None:
    endings = ["a", "no", "stop", "3"]

    async def program() -> Any:
        context = filled()
        forks = [context.fork() for _ in endings]
        for fork, ending in zip(forks, endings, strict=True):
            fork.fill(ending)
        texts = await asyncio.gather(*(fork.generate_until(max_tokens=12, stop_tokens=[]) for fork in forks))
        return texts, await context.generate_until(max_tokens=12, stop_tokens=[])

    texts, own = hybrid(program)
    assert texts == [text(greedy([*PROMPT, *TOKENIZER.encode(ending)], 12)) for ending in endings]
    assert own == text(greedy(PROMPT, 12))


def test_a_context_is_truncated_to_any_length_and_forwards_anew_what_it_must(hybrid: Run) -> None:
    async def program() -> Any:
        context, found = filled(), []
        for length in (38, 20, 36, 3):
            await context.read(lambda: 0)
            context.truncate(length)
            found.append(await context.generate_until(max_tokens=3, stop_tokens=[]))
            context.truncate(length)
            context.fill(TOKENIZER.decode(PROMPT[length:]))
        return found

    assert len(PROMPT) > 40
    assert hybrid(program) == [text(greedy(PROMPT[:length], 3)) for length in (38, 20, 36, 3)]


def test_candidates_of_any_length_are_scored_and_leave_the_context_as_it_is(hybrid: Run) -> None:
    candidates = ["a", "no way", "1 2 3 4 5 6 7"]

    async def program() -> Any:
        context = filled()
        scores = await context.score(candidates)
        return scores, await context.generate_until(max_tokens=4, stop_tokens=[])

    scores, after = hybrid(program)
    for candidate, score in zip(candidates, scores, strict=True):
        tokens = TOKENIZER.encode(candidate)
        wanted = sum(float(_row((*PROMPT, *tokens[:n]))[token]) for n, token in enumerate(tokens))
        assert score == pytest.approx(wanted, abs=1e-3)
    assert after == text(greedy(PROMPT, 4))


def test_beams_are_those_of_whole_passes(hybrid: Run) -> None:
    async def program() -> Any:
        context = filled()
        beams = await beam_search(context, width=3, max_tokens=5, length_penalty=0.0, stop_tokens=[])
        return [(beam.tokens, beam.score) for beam in beams]

    for tokens, score in hybrid(program):
        wanted = sum(float(_row((*PROMPT, *tokens[:n]))[token]) for n, token in enumerate(tokens))
        assert score == pytest.approx(wanted, abs=1e-3)
