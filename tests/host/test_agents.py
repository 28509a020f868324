"""The agents of ``benchmarks.agents`` on a tiny model: programs and clients that are compared do and write the same."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from benchmarks.calling.client import Inferlets, RequestingAgents
from benchmarks.calling.compare import INFERLET, REQUESTS, DisagreementError
from benchmarks.calling.ladder import BASELINE, EARLY, MASKED, Ladder
from benchmarks.calling.loopback import Client, serving
from benchmarks.calling.ours import Endpoint
from benchmarks.calling.script import RING, SHAPES, Scripts, Sizes
from benchmarks.inferlets import dialogue
from pie_edge.control.engine import Engine
from pie_edge.host import Host
from pie_edge.host.guest import Guest
from pie_edge.host.http import Request
from tests.host.tiny_hosting import on_tiny
from tests.support.tiny_text import TinyTokenizer

SIZES = Sizes(24, 3, (0, 1, 2), 2, (1,), document=24, own=8, errand_turn=6, agents=(1,))
OBSERVATIONS = {
    "react": lambda call: dialogue.observed(dialogue.found(call)),
    "codeact": lambda call: dialogue.printed(call, dialogue.run(dialogue.code(call))),
}


@dataclass
class Scene:
    """Both ways of running agents, on one host. ``asked`` is what the tool was asked."""

    inferlets: Inferlets
    requests: RequestingAgents
    scripts: Scripts
    endpoint: Endpoint
    asked: list[dict[str, Any]] = field(default_factory=list)


@asynccontextmanager
async def scene(host: Host) -> AsyncIterator[Scene]:
    tokenizer, endpoint = TinyTokenizer(), Endpoint(host)

    async def search(asked: dict[str, Any]) -> str:
        made.asked.append(asked)
        return dialogue.found(asked["call"])

    async with serving({"/search": search}) as tool, serving(endpoint.handlers) as url:
        server, tools = Client(url), Client(tool)
        made = Scene(
            Inferlets(server, tool),
            RequestingAgents(server, tools, tokenizer),
            Scripts(tokenizer, SIZES),
            endpoint,
        )
        yield made
        await server.close()
        await tools.close()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("calls", [0, 2])
def test_an_agent_writes_the_same_as_a_program_and_as_a_client(shape: str, calls: int) -> None:
    writes_the_same(shape, calls)


@pytest.mark.parametrize("calls", [1, RING, RING + 1])
def test_a_swarm_whose_ring_is_not_yet_or_just_closed_writes_the_same(calls: int) -> None:
    writes_the_same("swarm", calls)


def writes_the_same(shape: str, calls: int) -> None:
    async def body(host: Host, engine: Engine) -> None:
        async with scene(host) as stage:
            task = stage.scripts.task(shape, 17, calls)
            turns = await stage.inferlets.run(shape, task)
            assert [len(turn) for turn in turns] == [SIZES.turn] * (calls + 1)
            forwarded = stage.endpoint.used.forwarded_tokens
            assert await stage.requests.run(shape, task) == turns
            assert stage.asked == [dialogue.search(call) for call in range(calls)] * 2 * (shape == "react")
            if shape != "swarm":
                # Every token was forwarded once, but for the last: nothing follows it.
                observed = [TinyTokenizer().encode(OBSERVATIONS[shape](call)) for call in range(calls)]
                assert forwarded == sum(map(len, [task.prompts[0], *turns, *observed])) - 1
            assert stage.endpoint.used.cached_tokens > 0

    on_tiny(body)


def test_rungs_that_read_the_same_write_the_same_and_one_that_does_not_is_noticed() -> None:
    async def body(host: Host, engine: Engine) -> None:
        async with scene(host) as stage:
            ladder = Ladder({INFERLET: stage.inferlets, REQUESTS: stage.requests}, stage.scripts)
            await ladder.export()
            await ladder.check(exact=True)
            assert await ladder.climb(BASELINE, 2) > 0
            ladder.rungs[EARLY] = ladder.rungs[MASKED]
            with pytest.raises(DisagreementError, match=EARLY.replace("+", r"\+")):
                await ladder.check(exact=True)
            await ladder.withdraw()

    on_tiny(body)


def test_early_calls_are_made_when_their_text_is_there_and_others_at_the_turn_s_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[int] = []
    fetch = Guest.fetch

    async def noted(guest: Guest, request: Request) -> Any:
        begun.append(guest.space.usage.read_rows)
        return await fetch(guest, request)

    monkeypatch.setattr(Guest, "fetch", noted)

    async def body(host: Host, engine: Engine) -> None:
        async with scene(host) as stage:
            errand, turn = stage.scripts.errand(1, first=True), SIZES.errand_turn
            await stage.inferlets.call_functions(errand)
            assert begun == [turn, turn, 2 * turn, 2 * turn]
            begun.clear()
            await stage.inferlets.call_functions(errand, early=True)
            # In the step that makes a call's next token, or in the one after.
            made = [count - turn * (number // 2) for number, count in enumerate(begun)]
            assert all(third <= count < turn for third, count in zip((2, 4, 2, 4), made, strict=True))
            assert [asked["call"] for asked in stage.asked] == [0, 1, 2, 3] * 2

    on_tiny(body)


def test_masked_documents_are_hidden_and_leave_the_cache_as_it_is_to_others() -> None:
    async def body(host: Host, engine: Engine) -> None:
        async with scene(host) as stage:
            ladder = Ladder({INFERLET: stage.inferlets, REQUESTS: stage.requests}, stage.scripts)
            await ladder.export()
            errand = stage.scripts.errand(3, first=True)
            plain = await stage.inferlets.call_functions(errand)
            masked = await ladder.rungs[MASKED](errand)
            assert masked[0] == plain[0]
            assert masked[1:] != plain[1:]
            assert await stage.inferlets.call_functions(errand) == plain
            await ladder.withdraw()

    on_tiny(body)
