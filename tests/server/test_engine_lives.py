"""How an engine's process begins, ends, and is started again."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from pie_edge.config import load
from pie_edge.errors import (
    BadCheckpoint,
    DeviceLost,
    Disconnected,
    InferletFailed,
    InvalidHandle,
    NotReady,
)
from pie_edge.protocol.connection import error_of
from pie_edge.protocol.messages import (
    Send,
    State,
)
from pie_edge.server import supervisor as supervisor_module
from pie_edge.server.supervisor import Supervisor
from tests.server.engines import TINY, Watched, connected, engine, held, launched

ECHO = """
from inferlet import session
async def main(input):
    session.send("ready")
    while (text := await session.receive()) != "stop":
        session.send(text.upper())
    return "stopped"
"""


def test_an_engine_that_is_killed_is_started_again_and_what_ran_gets_a_typed_error() -> None:
    states: list[State] = []

    async def body() -> None:
        async with engine(states) as supervisor:
            async with connected(supervisor) as connection:
                program = await launched(connection, ECHO)
                await program.until(1)
                killed = (await held(supervisor))["process"]
                os.kill(killed, signal.SIGKILL)
                with pytest.raises(Disconnected):
                    await program.over
                with pytest.raises(Disconnected):
                    await connection.status()
            while supervisor.state.phase == "ready":
                await asyncio.sleep(0.01)
            with pytest.raises(NotReady, match="the model isn't there yet: .*; try again"):
                _ = supervisor.connection
            while supervisor.state.phase != "ready" or supervisor.starts < 2:
                await asyncio.sleep(0.02)
            assert (await held(supervisor))["process"] != killed
            assert "killed by signal 9" in "".join(state.what for state in states)
            async with connected(supervisor) as connection:
                with pytest.raises(InvalidHandle):
                    await connection.attach(Watched(connection).remote, program.remote.instance)

    asyncio.run(body())


def test_an_engine_that_can_t_load_says_why() -> None:
    async def body() -> None:
        supervisor = Supervisor(load({"model": "broken"}, {}).settings, lambda state: None, TINY)
        try:
            with pytest.raises(BadCheckpoint, match="broken.gguf is no checkpoint"):
                await supervisor.ready()
        finally:
            await supervisor.close()

    asyncio.run(body())


def test_an_engine_ends_when_whoever_started_it_is_gone() -> None:
    starter = """
import asyncio, os, signal
from tests.server.engines import *
async def main():
    async with engine() as supervisor:
        print((await held(supervisor))["process"], flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""

    async def body() -> None:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", starter, stdout=asyncio.subprocess.PIPE)
        assert process.stdout is not None
        orphan = int(await process.stdout.readline())
        assert await process.wait() == -signal.SIGKILL
        end = asyncio.get_running_loop().time() + 5
        while True:
            try:
                os.kill(orphan, 0)
            except ProcessLookupError:
                break
            state = (await asyncio.to_thread(_state, orphan)) if sys.platform == "linux" else ""
            if state == "Z":
                break
            assert asyncio.get_running_loop().time() < end
            await asyncio.sleep(0.05)

    asyncio.run(body())


def _state(process: int) -> str:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


def test_requests_before_the_model_is_there_are_told_to_come_again() -> None:
    async def body() -> None:
        supervisor = Supervisor(load({"model": "slow"}, {}).settings, lambda state: None, TINY)
        try:
            while supervisor.address is None or supervisor.state.total == 0:
                await asyncio.sleep(0.01)
            async with connected(supervisor) as connection:
                with pytest.raises(NotReady, match=r"the model is loading: reading nothing \(0 %\)"):
                    await launched(connection, ECHO)
                with pytest.raises(NotReady):
                    await connection.instances()
            with pytest.raises(NotReady, match="the model isn't there yet: reading nothing"):
                _ = supervisor.connection
        finally:
            await supervisor.close()

    asyncio.run(body())


def test_a_change_of_an_engine_s_state_is_told_once_however_often_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "_PULSE_SECONDS", 0.01)
    states: list[State] = []

    async def body() -> None:
        async with engine(states) as supervisor:
            for _ in range(20):
                assert (await supervisor.connection.status()).phase == "ready"
                await asyncio.sleep(0.01)
            assert [state.phase for state in states].count("ready") == 1

    asyncio.run(body())


def test_an_engine_that_hangs_is_ended_and_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "_PULSE_SECONDS", 0.1)
    monkeypatch.setattr(supervisor_module, "_SILENT_SECONDS", 1.0)
    states: list[State] = []

    async def body() -> None:
        async with engine(states) as supervisor:
            assert supervisor.pid is not None
            os.kill(supervisor.pid, signal.SIGSTOP)
            while supervisor.starts < 2 or supervisor.state.phase != "ready":
                await asyncio.sleep(0.02)
            assert "no sign of life for 1 s" in "".join(state.what for state in states)

    asyncio.run(body())


GENERATE = """
from inferlet import Context, session
async def main(input):
    session.send("ready")
    await session.receive()
    context = Context()
    context.fill("the")
    return await context.generate_until(max_tokens=2, stop_tokens=[])
"""


def test_an_engine_whose_device_is_lost_for_good_tells_its_inferlets_and_ends_to_be_started_again() -> None:
    states: list[State] = []

    async def body() -> None:
        async with engine(states) as supervisor:
            async with connected(supervisor) as connection:
                programs = [await launched(connection, GENERATE) for _ in range(3)]
                for program in programs:
                    await program.until(1)
                await supervisor.connection.ask("lose", "it fell off the bus")
                for program in programs:
                    await connection.tell(Send, program.remote.instance, "go on")
                for program in programs:
                    error = error_of(await program.over)
                    assert isinstance(error, InferletFailed) and error.cause == DeviceLost.code
                    assert "it fell off the bus" in error.message
            while supervisor.starts < 2 or supervisor.state.phase != "ready":
                await asyncio.sleep(0.02)
            assert "the engine ended (it fell off the bus) and is started again" in [state.what for state in states]
            async with connected(supervisor) as connection:
                program = await launched(connection, GENERATE)
                await connection.tell(Send, program.remote.instance, "go on")
                assert (await program.over).result is not None

    asyncio.run(body())


def test_an_inferlet_that_goes_on_without_its_device_doesn_t_keep_the_engine_from_ending() -> None:
    source = GENERATE.replace("    return await", "    try:\n        await").replace(
        "stop_tokens=[])",
        "stop_tokens=[])\n    except Exception:\n        session.send('lost')\n    await session.receive()",
    )

    async def body() -> None:
        async with engine() as supervisor, connected(supervisor) as connection:
            program = await launched(connection, source)
            await supervisor.connection.ask("lose", "gone")
            await connection.tell(Send, program.remote.instance, "go on")
            await program.until(2)
            assert program.texts == ["ready", "lost"]
            with pytest.raises(Disconnected):
                await program.over
            while supervisor.starts < 2 or supervisor.state.phase != "ready":
                await asyncio.sleep(0.02)

    asyncio.run(body())
