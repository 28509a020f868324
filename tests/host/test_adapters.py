"""Low-rank adapters from a program: contexts and passes through one, shared prefixes, what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.host.tiny_hosting import run_tiny
from tests.support import tiny_oracle
from tests.support.native_guest import native
from tests.support.tiny import ADAPTERS, PAGE, random_adapters
from tests.support.tiny_text import TinyTokenizer

from inferlet import Context, errors, eta, model  # isort: skip

TOKENIZER = TinyTokenizer()
LONG = "the one. stop the hello yes no 1 2 3 the ingerss"
PROMPT = [1, *TOKENIZER.encode(LONG)]
COUNT = 8
Run = Callable[..., Any]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    with native(rows=64, sequences=16, adapters=random_adapters()) as runner:
        yield runner


async def generated(adapter: str | None) -> list[int]:
    context = Context(adapter=adapter)
    context.fill(LONG)
    await context.generate_until(max_tokens=COUNT, stop_tokens=[])
    return context.tokens[len(PROMPT) :]


def expected(adapter: str | None) -> list[int]:
    if adapter is None:
        return tiny_oracle.greedy(PROMPT, COUNT)
    return tiny_oracle.adapted(ADAPTERS.index(adapter), PROMPT, COUNT)


def test_contexts_through_different_adapters_say_different_things_in_shared_steps(run: Run) -> None:
    async def program() -> Any:
        return model.adapters(), await asyncio.gather(*map(generated, (None, *ADAPTERS, "poet")))

    names, found = run(program)
    assert names == list(ADAPTERS)
    assert found == [expected(None), expected("poet"), expected("clerk"), expected("poet")]
    assert len({tuple(one) for one in found}) == 3


def test_a_prefix_is_shared_by_those_of_one_adapter_alone() -> None:
    async def program() -> list[list[int]]:
        return [await generated(name) for name in ("poet", "clerk", None, "poet", None, "clerk")]

    with native(rows=64, sequences=16, adapters=random_adapters(), speculation_depth=0) as run:
        found = run(program)
        used = run.thread.engine.statistics.rows
    assert found == [expected(name) for name in ("poet", "clerk", None, "poet", None, "clerk")]
    alone = len(PROMPT) + COUNT - 1
    saved = len(PROMPT) // PAGE * PAGE
    assert used == 6 * alone - 3 * saved


def test_forks_and_snapshots_keep_the_adapter(run: Run) -> None:
    async def program() -> Any:
        context = Context(adapter="poet")
        context.fill(LONG)
        fork = context.fork()
        await asyncio.gather(*(one.generate_until(max_tokens=COUNT, stop_tokens=[]) for one in (context, fork)))
        return context.tokens, fork.tokens

    first, second = run(program)
    assert first == second == PROMPT + expected("poet")


def test_a_pass_through_an_adapter_over_a_context_that_came_through_none(run: Run) -> None:
    async def program() -> Any:
        pages = eta.WorkingSet(tokens=32)
        found = []
        with eta.Pipeline() as pipe:
            for place, adapter in enumerate([None, "poet", "clerk", None]):
                step = eta.ForwardPass()
                step.embed([PROMPT[place]])
                step.bind_state(pages, pages.geometry(place, place + 1))
                step.adapt(adapter)
                found.append(step.epilogue(lambda: eta.reduce_argmax(eta.intrinsics.logits())))
                pipe.submit(step)
            return [await one for one in found]

    assert len(run(program)) == 4


@pytest.mark.parametrize(
    "program",
    [
        lambda: Context(adapter="priest"),
        lambda: eta.ForwardPass().adapt("priest"),
        lambda: eta.ForwardPass().adapt(""),
    ],
)
def test_an_adapter_that_is_not_there(run: Run, program: Any) -> None:
    async def body() -> None:
        program()

    with pytest.raises(errors.InvalidHandle, match=r"no adapter '(priest)?'; it has poet, clerk"):
        run(body)


SOURCE = """
from inferlet import Context, model
from inferlet.traits import *


async def main(input):
    kv, e, out = alloc_kvpage(1), alloc_emb(1), alloc_emb(1)
    embed_txt(e, [5], [0])
    found = {"names": model.adapters(), "trait": "adapter" in model.get(model.name()).traits}
    try:
        forward_with_adapter(input["adapter"], kv[:0], e, kv[:1], out)
        found["level1"] = (await get_next_dist(out)).max_index()
    except Exception as error:
        found["level1"] = [type(error).__name__, str(error)]
    try:
        context = Context(adapter=input["adapter"])
        context.fill([5])
        await context.generate_until(max_tokens=4, stop_tokens=[])
        found["context"] = context.tokens
    except Exception as error:
        found["context"] = [type(error).__name__, str(error)]
    return found
"""


def test_an_inferlet_uses_adapters_at_every_level() -> None:
    found = run_tiny(SOURCE, {"adapter": "clerk"}, settings={"adapters": random_adapters()}).result
    assert found["names"] == list(ADAPTERS) and found["trait"]
    assert found["level1"] == tiny_oracle.adapted(1, [5], 1)[0]
    assert found["context"] == [1, 5, *tiny_oracle.adapted(1, [1, 5], 4)]


def test_an_inferlet_on_a_model_without_adapters_hears_so() -> None:
    found = run_tiny(SOURCE, {"adapter": "clerk"}).result
    assert found["names"] == [] and not found["trait"]
    assert found["level1"][0] == "Unsupported" and "no trait adapter" in found["level1"][1]
    assert found["context"][0] == "InvalidHandle" and "loaded with none" in found["context"][1]
