"""Programs of the support library as components: the real host, the real engine, the tiny model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pie_edge.host import Host, Limits
from tests.host.hosting import Ended, finish
from tests.support import tiny_oracle
from tests.support.reference_backend import ReferenceBackend
from tests.support.tiny import open_tiny
from tests.support.tiny_text import TinyTokenizer, TinyTurns

ROOT = Path(__file__).resolve().parents[2]
TOKENIZER, TURNS = TinyTokenizer(), TinyTurns()
PROMPT = [1, *TOKENIZER.encode("the one.")]


@asynccontextmanager
async def hosting(template: bool = True) -> AsyncIterator[tuple[Host, Any]]:
    engine = await open_tiny(ReferenceBackend(), rows=64, sequences=16)
    tokenizer: Any = TOKENIZER
    host = await Host.open(engine, tokenizer, TURNS if template else None, Limits(time=60.0))
    try:
        yield host, engine
    finally:
        await host.close()
        await engine.close()
    assert engine.pool.free + engine.prefixes.reclaimable == engine.pool.total


def run(program: Path | str, input: dict[str, Any] | None = None, *, template: bool = True, seed: int = 1) -> Ended:
    async def body() -> Ended:
        async with hosting(template) as (host, _):
            return await finish(host, program, input, seed=seed, name="program")

    return asyncio.run(body())


def test_the_shortest_program_continues_a_text() -> None:
    source = """
from inferlet import Context, model

async def main(input):
    ctx = Context(model)
    ctx.fill("the one.")
    return await ctx.generate_until(max_tokens=10)
"""
    ended = run(source)
    assert ended.error is None, ended.traceback
    assert ended.result == TOKENIZER.decode(tiny_oracle.greedy(PROMPT, 10))


def test_a_stream_arrives_piece_by_piece() -> None:
    source = """
from inferlet import Context, session

async def main(input):
    context = Context()
    context.fill_user("hello")
    async for piece in context.generate(max_tokens=12, stop_tokens=[]):
        session.send(piece)
    return [context.last.finish_reason, context.last.usage.prompt]
"""
    ended = run(source)
    asked = [1, *TURNS.preamble(), *TURNS.user("hello"), *TURNS.cue()]
    assert ended.result == ["length", len(asked)], ended.traceback
    assert ended.text == TOKENIZER.decode(tiny_oracle.greedy(asked, 12))


def test_four_forks_are_one_step() -> None:
    source = """
import asyncio
from inferlet import Context

async def main(input):
    context = Context()
    context.fill("the one.")
    forks = [context.fork() for _ in range(4)]
    for fork, ending in zip(forks, input["endings"]):
        fork.fill(ending)
    return await asyncio.gather(*(fork.generate_until(max_tokens=6, stop_tokens=[]) for fork in forks))
"""
    endings = ["a", "no", "stop", "3"]

    async def body() -> tuple[Ended, Any]:
        async with hosting() as (host, engine):
            return await finish(host, source, {"endings": endings}), engine.statistics

    ended, statistics = asyncio.run(body())
    prompts = [[*PROMPT, *TOKENIZER.encode(ending)] for ending in endings]
    assert ended.result == [TOKENIZER.decode(tiny_oracle.greedy(prompt, 6)) for prompt in prompts], ended.traceback
    assert statistics.largest_step == 4


SAMPLED = """
import asyncio
from inferlet import Context, Dry, Mirostat, Sampler

SAMPLERS = [
    Sampler(temperature=0.9, top_k=20, top_p=0.9, min_p=0.01, typical=0.95),
    Sampler(mirostat=Mirostat(target=3.0)),
    Sampler(repetition=1.3, presence=0.4, frequency=0.2, dry=Dry(), logit_bias={10: 1.5}),
]

async def main(input):
    texts = []
    for sampler in SAMPLERS:
        context = Context()
        context.fill("the one.")
        forks = [context.fork() for _ in range(3)]
        texts += await asyncio.gather(*(fork.generate_until(sampler, max_tokens=8, stop_tokens=[]) for fork in forks))
    return texts
"""


def test_draws_depend_on_the_seed_alone() -> None:
    first, again, other = (run(SAMPLED, seed=seed) for seed in (5, 5, 6))
    assert first.error is None, first.traceback
    assert first.result == again.result
    assert first.result != other.result
    for texts in (first.result[:3], first.result[3:6], first.result[6:]):
        assert len(set(texts)) == 3


def test_an_error_of_the_library_is_shown_at_the_program_s_line() -> None:
    source = """
from inferlet import Context

async def main(input):
    context = Context()
    context.fill("x" * 400)
"""
    ended = run(source)
    assert ended.error is not None
    assert ended.error.cause == "context-overflow"  # type: ignore[attr-defined]
    assert 'context.fill("x" * 400)' in ended.traceback
    assert "the context would be 401 tokens long, and tiny can read 256: 145 too many" in ended.traceback


@pytest.mark.parametrize("template", [True, False])
def test_the_example_best_of_n_keeps_the_best_of_its_answers(template: bool) -> None:
    ended = run(ROOT / "inferlets/best-of-n/main.py", {"prompt": "the one", "n": 3, "max_tokens": 5}, template=template)
    assert ended.error is None, ended.traceback
    answers = ended.result["answers"]
    assert len({answer["text"] for answer in answers}) == 3
    assert [answer["score"] for answer in answers] == sorted((answer["score"] for answer in answers), reverse=True)
    assert ended.result["text"] == answers[0]["text"]


def test_the_example_beam_finds_what_is_likelier_than_the_greedy_answer() -> None:
    ended = run(ROOT / "inferlets/beam/main.py", {"prompt": "the one.", "width": 5, "max_tokens": 6})
    assert ended.error is None, ended.traceback
    beams = ended.result
    greedy = tiny_oracle.greedy(PROMPT, 6)
    logprob = sum(tiny_oracle.logprobs_after((*PROMPT, *greedy[:place]))[token] for place, token in enumerate(greedy))
    assert [beam["score"] for beam in beams] == sorted((beam["score"] for beam in beams), reverse=True)
    assert beams[0]["logprob"] >= logprob - 1e-3
