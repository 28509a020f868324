"""Working sets on real keys and values: slices, hidden tokens, masks, positions, and contexts found by key."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pie_edge import errors as ours
from pie_edge.control.engine import Engine
from tests.host.hosting import finish
from tests.host.tiny_hosting import on_tiny, run_tiny
from tests.support.tiny_oracle import greedy

HEAD = """
import asyncio
from inferlet import errors, model
from inferlet.eta import *

pipe = Pipeline()

async def step(context, tokens, start, positions=None, mask=None, last=1):
    "The best token after each of the ``last`` ones of ``tokens``."
    one = ForwardPass()
    one.embed(tokens, positions)
    one.bind_state(context, context.geometry(start, start + len(tokens)))
    if mask is not None:
        one.mask(mask)
    best = one.epilogue(lambda: reduce_argmax(intrinsics.logits()), rows=list(range(len(tokens)))[-last:])
    pipe.submit(one)
    found = await best
    return found if isinstance(found, list) else [found]
"""


def result(body: str, **options: Any) -> Any:
    lines = "\n".join("    " + line for line in body.strip().splitlines())
    ended = run_tiny(f"{HEAD}\nasync def main(input):\n{lines}\n", **options)
    assert ended.error is None, ended.traceback or ended.error
    return ended.result


def test_a_mask_says_what_each_token_sees() -> None:
    """A tree of two continuations in one pass, at one position."""
    found = result("""
context = WorkingSet(tokens=16)
await step(context, [3, 1, 4], 0)
return await step(context, [7, 8], 3, positions=[3, 3], mask=[[True] * 4 + [False], [True] * 3 + [False, True]], last=2)
""")
    assert found == [greedy([3, 1, 4, 7], 1)[0], greedy([3, 1, 4, 8], 1)[0]]


def test_hidden_tokens_are_not_seen_until_they_are_shown_and_a_fork_s_are_its_own() -> None:
    hidden, never, whole, fork = result("""
context = WorkingSet(tokens=16)
await step(context, [3], 0)
await step(context, [50], 1, positions=[9])
await step(context, [4], 2, positions=[1], mask=[[True, False, True]])
fork = context.fork()
context.hide(1, [True])
hidden = await step(context, [5], 3, positions=[2])
other = WorkingSet(tokens=16)
never = await step(other, [3, 4, 5], 0)
context.hide(1, [False])
whole = await step(context, [5], 3, positions=[2])
return hidden, never, whole, await step(fork, [5], 3, positions=[2])
""")
    assert hidden == never == greedy([3, 4, 5], 1)
    assert whole == fork


def test_a_slice_has_some_of_the_pages_and_its_tokens_keep_their_positions() -> None:
    """The second page of a context is what a mask of the first leaves."""
    sliced, masked, left = result("""
context = WorkingSet(tokens=24)
prompt = list(range(5, 21))
await step(context, prompt, 0)
part = context.slice(1, 2)
sliced = await step(part, [30], 8, positions=[16])
masked = await step(context, [30], 16, mask=[[False] * 8 + [True] * 9])
left = part.capacity
part.close()
return sliced, masked, left
""")
    assert sliced == masked
    assert left == 16


def test_a_context_is_found_by_its_key_by_everybody_and_after_its_inferlet_has_ended() -> None:
    writer = (
        HEAD
        + """
async def main(input):
    context = WorkingSet(tokens=24)
    await step(context, list(range(5, 21)), 0)
    context.add("document")
    return await step(context, [30], 16)
"""
    )
    reader = (
        HEAD
        + """
async def main(input):
    found = WorkingSet.find("document")
    if found is None:
        return None
    best = await step(found, [input["token"]], 16)
    return best, found.capacity
"""
    )
    remover = HEAD + "async def main(input): return WorkingSet.remove('document'), WorkingSet.remove('document')"
    document = list(range(5, 21))

    async def body(host: Any, engine: Engine) -> None:
        assert (await finish(host, reader, {"token": 30})).result is None
        assert (await finish(host, writer)).result == greedy([*document, 30], 1)
        asked = [(await finish(host, reader, {"token": token})) for token in (30, 31, 32)]
        assert [one.result for one in asked] == [[greedy([*document, t], 1), 24] for t in (30, 31, 32)]
        ended = await host.launch(reader, {"token": 33}).result()
        assert (ended.usage.forwarded_tokens, ended.usage.passes) == (1, 1)
        assert (await finish(host, remover)).result == [True, False]
        assert (await finish(host, reader, {"token": 30})).result is None
        assert not engine.shared

    on_tiny(body)


REFUSED = {
    "a slice of pages that aren't there": ("ws.slice(1, 2)", "InvalidHandle", "pages 1…3 of a working set of 2"),
    "a slice of fewer than no pages": ("ws.slice(0, -1)", "InvalidHandle", "count is -1"),
    "tokens to hide that aren't there": ("ws.hide(15, [True, True])", "InvalidHandle", "masks tokens 15…17"),
    "a mask of too few rows": ("await step(ws, [1], 3, mask=[])", "InvalidHandle", "a mask of 0 rows"),
    "a mask of too few places": ("await step(ws, [1], 3, mask=[[True] * 3])", "InvalidHandle", "1 rows of 4"),
    "too few positions": ("await step(ws, [1, 2], 3, positions=[3])", "InvalidHandle", "1 positions for 2 tokens"),
    "a position beyond the context": ("await step(ws, [1], 3, positions=[256])", "ContextOverflow", "limit is 256"),
    "a negative position": ("await step(ws, [1], 3, positions=[-1])", "InvalidHandle", "-1 was given as a position"),
    "a key that is taken": ("ws.add('taken')", "InvalidHandle", "'taken', which is taken; remove it first"),
    "an empty key": ("ws.add('')", "ResourceError", "a key of 0 characters"),
    "an endless key": ("ws.add('x' * 257)", "ResourceError", "a key of 257 characters"),
    "a working set in use": (
        "big = WorkingSet(tokens=240); late = asyncio.create_task(step(big, [1] * 240, 0)); await asyncio.sleep(0); big.add('x')",
        "InvalidHandle",
        "that 1 passes still use; await them first",
    ),
    "a closed working set": ("ws.close(); ws.add('x')", "InvalidHandle", "was closed"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_and_changes_nothing(case: str) -> None:
    statement, kind, said = REFUSED[case]
    lines = "\n".join("        " + part for part in statement.split("; "))
    source = f"""{HEAD}
async def main(input):
    taken, ws = WorkingSet(tokens=8), WorkingSet(tokens=16)
    taken.add("taken")
    await step(ws, [3, 1, 4], 0)
    other = ws.fork()
    try:
{lines}
    except errors.PieError as error:
        told = [type(error).__name__, error.code, str(error)]
    return told, await step(other, [5], 3), WorkingSet.remove("taken")
"""

    async def body(host: Any, _: Engine) -> Any:
        return await finish(host, source, name="program")

    ended = on_tiny(body)
    assert ended.error is None, ended.traceback
    told, after, removed = ended.result
    assert told[:2] == [kind, getattr(ours, kind).code]
    assert said in told[2]
    assert after == greedy([3, 1, 4, 5], 1)
    assert removed


def test_a_context_under_a_key_shares_its_prefix_with_whoever_fills_the_same() -> None:
    writer = (
        HEAD
        + """
async def main(input):
    context = WorkingSet(tokens=24)
    await step(context, list(range(5, 21)), 0)
    context.add("document")
"""
    )

    filler = (
        HEAD
        + """
async def main(input):
    context, one = WorkingSet(tokens=24), ForwardPass()
    one.embed([*range(5, 21), 30])
    one.bind_state(context, context.geometry(0, 17))
    best = one.epilogue(lambda: reduce_argmax(intrinsics.logits()))
    pipe.submit(one)
    return await best
"""
    )

    async def body(host: Any, engine: Engine) -> None:
        await finish(host, writer)
        outcome = await host.launch(filler, {}).result()
        assert outcome.result == greedy([*range(5, 21), 30], 1)[0]
        assert outcome.usage.cached_tokens == 16
        assert engine.shared.remove("document")
        await asyncio.sleep(0)

    on_tiny(body)
