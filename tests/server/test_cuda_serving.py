"""A server on CUDA devices whose errors stick: what was under way hears of it, and the server goes on with what is left, or with
an engine that is started anew. The devices are emulated, the driver's stand-in is told to fail; everything else is real."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

pytest.importorskip("tests.support.needs_simt")

from pie_edge.protocol.messages import Row
from pie_edge.server.serve import Serving
from tests.backend.cuda_emulated import ON_CARD
from tests.server.fronts import CHAT, SCRIPTS, answer, ask, asking, chat, front, write_model
from tests.simt import build

LONG = "".join(SCRIPTS["long"])
FIRST, SECOND = "SIMT CPU emulation", "SIMT CPU emulation (2)"

pytestmark = pytest.mark.skipif(ON_CARD, reason="a card isn't told to fail")


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def loader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines that are started find the stand-in for the driver by its name."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(build.driver().parent))


def on_cards(model: Path, device: str, body: Callable[[Serving], Awaitable[None]]) -> None:
    async def inside() -> None:
        command = (sys.executable, "-m", "tests.server.cuda_engine", "2")
        settings = {"backend": "auto", "device": device, "kv_memory": 1 << 20}
        async with front(model, command, **settings) as server:
            await server.supervisor.ready()
            await body(server)

    asyncio.run(asyncio.wait_for(inside(), 120))


async def until_computing(server: Serving, count: int) -> list[Row]:
    while True:
        rows = [row for row in await server.supervisor.connection.instances() if row.usage["read_rows"] > 2]
        if len(rows) >= count:
            return rows
        await asyncio.sleep(0.02)


def strike(server: Serving, number: signal.Signals) -> None:
    assert server.supervisor.pid is not None
    os.kill(server.supervisor.pid, number)


async def short(server: Serving) -> str:
    answered = await ask(server.url, "POST", CHAT, chat("[short]"))
    assert answered.status == 200, answered.body
    return str(answered.json["choices"][0]["message"]["content"])


async def started_again(server: Serving, starts: int) -> None:
    while server.supervisor.starts < starts or server.supervisor.state.phase != "ready":
        await asyncio.sleep(0.02)


def test_an_error_that_sticks_ends_the_engine_and_the_next_one_gives_the_same_answers(
    scripted: Path, loader: None
) -> None:
    async def body(server: Serving) -> None:
        assert await short(server) == "yes."
        async with asking(server.url, "POST", CHAT, chat("[long]")) as (reader, _):
            await until_computing(server, 1)
            strike(server, signal.SIGUSR1)
            answered = await answer(reader)
        assert answered.status == 503
        assert "CUDA_ERROR_ECC_UNCORRECTABLE (214)" in answered.json["error"]["message"]
        await started_again(server, 2)
        assert (await ask(server.url, "GET", "/health")).json["engine_starts"] == 2
        assert await short(server) == "yes."

    on_cards(scripted, "cuda:0", body)


def test_one_of_two_cards_is_lost_and_only_its_requests_are(scripted: Path, loader: None) -> None:
    async def body(server: Serving) -> None:
        requests = [asyncio.create_task(ask(server.url, "POST", CHAT, chat("[long]"))) for _ in range(2)]
        rows = await until_computing(server, 2)
        assert {row.device for row in rows} == {FIRST, SECOND}
        strike(server, signal.SIGUSR2)
        answers = await asyncio.gather(*requests)
        assert sorted(answered.status for answered in answers) == [200, 503]
        whole = next(answered for answered in answers if answered.status == 200)
        assert whole.json["choices"][0]["message"]["content"] == LONG
        assert [await short(server) for _ in range(2)] == ["yes."] * 2
        figures = (await ask(server.url, "GET", "/metrics")).body.decode()
        assert f'pie_edge_each_device_serves{{device="{FIRST}",number="0"}} 1.0' in figures
        assert f'pie_edge_each_device_serves{{device="{SECOND}",number="1"}} 0.0' in figures
        assert server.supervisor.starts == 1
        # With the last one goes the process, and a new one has both again.
        strike(server, signal.SIGUSR1)
        assert (await ask(server.url, "POST", CHAT, chat("[short]"))).status == 503
        await started_again(server, 2)
        assert await short(server) == "yes."
        figures = (await ask(server.url, "GET", "/metrics")).body.decode()
        assert f'pie_edge_each_device_serves{{device="{SECOND}",number="1"}} 1.0' in figures

    on_cards(scripted, "cuda:0,1", body)
