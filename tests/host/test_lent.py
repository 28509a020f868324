"""Contexts that one inferlet leaves for later ones: for a time, or until their pages are needed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pie_edge.control import space
from pie_edge.control.engine import Engine
from tests.host.hosting import finish
from tests.host.tiny_hosting import on_tiny
from tests.support.tiny import PAGE, open_tiny
from tests.support.tiny_hybrid import open_hybrid

LEAVE = """
from inferlet import Context, runtime
async def main(input):
    context = Context(seed=1)
    context.fill(input["text"])
    await context.generate_until(max_tokens=6, stop_tokens=[])
    await context.share("left", seconds=input["seconds"])
    return context.tokens
"""
GO_ON = """
from inferlet import Context, runtime
async def main(input):
    context = Context(seed=1)
    context.truncate(0)
    resumed = context.resume("left", input["tokens"])
    context.fill(input["tokens"][len(context.tokens):])
    context.fill(input["more"])
    text = await context.generate_until(max_tokens=6, stop_tokens=[])
    used = runtime.usage()
    return [resumed, context.tokens, used.forwarded, used.cached]
"""
FILL = """
from inferlet import Context
async def main(input):
    context = Context()
    context.fill([5] * (input["tokens"] - 1))
    await context.generate_until(max_tokens=1)
"""
REMOVE = "from inferlet.eta import WorkingSet\ndef main(): return WorkingSet.remove({!r})"
PAGE_BYTES = 2048
TEXT = "the one. stop and no yes or an end to it all"


@pytest.mark.parametrize("opening", [open_tiny, open_hybrid])
def test_a_later_inferlet_goes_on_where_one_has_ended_and_computes_only_what_is_new(opening: Any) -> None:
    async def body(host: Any, engine: Engine) -> None:
        left = (await finish(host, LEAVE, {"text": TEXT, "seconds": None})).result
        asked = {"tokens": left, "more": " yes no"}
        resumed, tokens, forwarded, cached = (await finish(host, GO_ON, asked)).result
        assert resumed == len(left) - 1
        # The last token of what was left, what is new, and what was made but the last.
        assert (forwarded, cached) == (len(tokens) - 1 - resumed, 0)
        assert (await finish(host, REMOVE.format("left"))).result
        anew = (await finish(host, GO_ON, asked)).result
        assert anew[:2] == [0, tokens] and anew[2] + anew[3] == len(tokens) - 1

    on_tiny(body, opening=opening)


def test_what_is_lent_goes_after_its_time() -> None:
    async def body(host: Any, engine: Engine) -> None:
        left = (await finish(host, LEAVE, {"text": TEXT, "seconds": 0.2})).result
        assert "left" in engine.shared
        for _ in range(200):
            if "left" not in engine.shared:
                break
            await asyncio.sleep(0.01)
        assert not len(engine.shared) and not engine.shared.dropped
        assert (await finish(host, GO_ON, {"tokens": left, "more": " yes"})).result[0] == 0

    on_tiny(body)


def test_what_is_lent_makes_room_and_what_is_shared_does_not() -> None:
    async def body(host: Any, engine: Engine) -> None:
        await finish(host, LEAVE.replace('"left"', '"kept"'), {"text": TEXT, "seconds": None})
        await finish(host, LEAVE, {"text": "END " + TEXT, "seconds": 1000})
        assert "left" in engine.shared
        ended = await finish(host, FILL, {"tokens": 12 * PAGE})
        assert ended.error is None, ended
        assert "left" not in engine.shared and engine.shared.dropped == 1
        assert "kept" in engine.shared
        assert (await finish(host, REMOVE.format("kept"))).result

    on_tiny(body, settings={"kv_memory": 20 * PAGE_BYTES})


def test_beyond_as_many_as_there_may_be_the_oldest_that_is_lent_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space, "MAX_SHARED", 2)

    async def body(host: Any, engine: Engine) -> None:
        for key, seconds in (("lent", 100), ("kept", None), ("late", 100), ("more", None)):
            ended = await finish(host, LEAVE.replace('"left"', repr(key)), {"text": TEXT, "seconds": seconds})
            assert ended.error is None, ended
        assert ["lent" in engine.shared, "kept" in engine.shared, "late" in engine.shared] == [False, True, False]
        refused = await finish(host, LEAVE, {"text": TEXT, "seconds": 100})
        assert refused.error is not None and "there are 2 shared" in str(refused.error)
        for key in ("kept", "more"):
            assert (await finish(host, REMOVE.format(key))).result

    on_tiny(body)


def test_what_wasn_t_forwarded_yet_is_when_it_is_shared() -> None:
    program = """
from inferlet import Context, errors, runtime
async def main(input):
    context, told = Context(), []
    await refused(told, context.share("x"))
    context.fill("the one and no")
    await refused(told, context.share("x", seconds=-1))
    await context.share("x", seconds=100)
    try:
        context.resume("x", [1, 2, 3])
    except errors.UsageError as error:
        told.append(str(error))
    return told, runtime.usage().forwarded, len(context.tokens)

async def refused(told, attempt):
    try:
        await attempt
    except errors.UsageError as error:
        told.append(str(error))
"""

    async def body(host: Any, engine: Engine) -> None:
        ended = await finish(host, program)
        assert ended.error is None, ended
        told, forwarded, tokens = ended.result
        assert ["leaves nothing" in told[0], "-1 seconds" in told[1], "in an empty one" in told[2]] == [True] * 3
        assert forwarded == tokens - 1 and "x" in engine.shared
        assert (await finish(host, REMOVE.format("x"))).result

    on_tiny(body)
