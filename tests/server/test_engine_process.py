"""Inferlets in an engine's process, over its connection: all with real processes and sockets."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgpack
import pytest

from pie_edge import errors
from pie_edge.errors import (
    Disconnected,
    InvalidHandle,
    ResourceError,
    Unauthorized,
    UsageError,
)
from pie_edge.protocol.codec import encode, from_server
from pie_edge.protocol.connection import Connection, error_of
from pie_edge.protocol.framing import framed
from pie_edge.protocol.messages import (
    Detach,
    FilePart,
    Hello,
    Launch,
    Message,
    Output,
    Refused,
    Send,
    SendFile,
    Signal,
    State,
    Status,
    Terminate,
    Welcome,
)
from pie_edge.protocol.wire import StreamWire
from pie_edge.server.supervisor import Supervisor
from tests.server.engines import Watched, connected, held, launched, settled, with_engine

ECHO = """
from inferlet import session
async def main(input):
    session.send("ready")
    while (text := await session.receive()) != "stop":
        session.send(text.upper())
    return "stopped"
"""
BUSY = """
from inferlet import session
from inferlet.eta import ForwardPass, Pipeline, WorkingSet, intrinsics, reduce_argmax
async def main(input):
    context, tokens, seen = WorkingSet(tokens=250), [5] * input["prompt"], 0
    session.send("began")
    with Pipeline() as pipe:
        while True:
            step = ForwardPass()
            step.embed(tokens)
            step.bind_state(context, context.geometry(seen, seen + len(tokens)))
            best = step.epilogue(lambda: reduce_argmax(intrinsics.logits()))
            pipe.submit(step)
            seen += len(tokens)
            if seen == 250:
                context, seen = WorkingSet(tokens=250), 0
            tokens = [await best]
            session.send(f"token {tokens[0]}")
            await session.drain()
"""


def test_messages_output_and_the_result_come_in_order_with_what_it_used() -> None:
    source = """
import sys
from inferlet import session
async def main(input):
    print("printed", input["x"], flush=True)
    session.send("sent")
    print("to the log", file=sys.stderr, flush=True)
    return {"é": [input["x"], None]}
"""

    async def body(supervisor: Supervisor) -> None:
        async with connected(supervisor) as connection:
            program = await launched(connection, source, {"x": "\U0001f600"}, name="tester", seed=2**64 - 1)
            ended = await program.over
            id = program.remote.instance
            assert program.remote.name == "tester"
            assert json.loads(ended.result or "") == {"é": ["\U0001f600", None]}
            assert program.events[:2] == [Output(id, "printed \U0001f600\n", False), Message(id, "sent")]
            assert [(event.log, event.text) for event in program.events[2:]] == [(True, "to the log\n")]
            assert (ended.usage["passes"], set(ended.timings)) == (0, {"instantiate", "run"})
            assert await connection.instances() == ()

    with_engine(body)


def test_programs_by_name_are_the_built_in_ones_and_those_that_were_installed() -> None:
    async def body(supervisor: Supervisor) -> None:
        async with connected(supervisor) as connection, connected(supervisor) as other:
            assert {"chat", "completion"} <= set((await connection.status()).programs)
            await connection.install("mine", "async def main(input): return input['x'] + 1")
            program = Watched(other)
            await other.launch(program.remote, '{"x": 41}', program="mine")
            assert (program.remote.name, (await program.over).result) == ("mine", "42")
            with pytest.raises(UsageError, match="'chat' comes with pie-edge"):
                await connection.install("chat", "")
            with pytest.raises(UsageError, match="no program 'yours' here; there are .*mine"):
                await other.launch(Watched(other).remote, "{}", program="yours")
            for name in ("../chat", "", "a\nb"):
                with pytest.raises(UsageError, match="is no name of a program"):
                    await connection.install(name, "")

    with_engine(body)


def test_an_input_that_is_no_object_is_the_inferlet_s_to_refuse() -> None:
    async def body(supervisor: Supervisor) -> None:
        async with connected(supervisor) as connection:
            for input in ("", "[1]", "{", "nonsense", '"x"', "[" * 5000):
                program = Watched(connection)
                await connection.launch(program.remote, input, source="async def main(input): return 1")
                error = error_of(await program.over)
                assert isinstance(error, errors.InferletFailed), input
                assert (error.cause, "the input is" in error.message) == ("usage", True), input

    with_engine(body)


def test_how_an_inferlet_failed_arrives_whole() -> None:
    source = "async def main(input):\n    from inferlet.errors import OutOfPages\n    raise OutOfPages('none left')"

    async def body(supervisor: Supervisor) -> None:
        async with connected(supervisor) as connection:
            error = error_of(await (await launched(connection, source)).over)
            assert isinstance(error, errors.InferletFailed)
            assert error.cause == "out-of-pages"
            assert 'File "main.py", line 3, in main' in error.traceback
            slow = await launched(connection, "import asyncio\nasync def main(i): await asyncio.sleep(9)", time=0.2)
            assert isinstance(error_of(await slow.over), errors.InferletTimeout)
            invalid = await launched(connection, "def main(:")
            assert isinstance(error_of(await invalid.over), errors.InferletInvalid)

    with_engine(body)


def test_signals_and_files_go_over_the_wire_in_parts() -> None:
    source = """
from inferlet import session
async def main(input):
    file = await session.receive_file()
    session.send("between")
    session.send_file("back", file.data + b"!")
    session.send("after")
    return [file.name, len(file.data), await session.signal()]
"""
    data = bytes(range(256)) * 10_000

    async def body(supervisor: Supervisor) -> None:
        async with connected(supervisor) as connection:
            program = await launched(connection, source, window=2**16)
            id = program.remote.instance
            for start in range(0, len(data), 2**20):
                await connection.tell(
                    SendFile, id, "some file", data[start : start + 2**20], start + 2**20 >= len(data)
                )
            await connection.tell(Signal, id, "go")
            got = b""
            while not program.over.done():
                program.changed.clear()
                got += b"".join(event.part for event in program.events if isinstance(event, FilePart))
                rest = [event for event in program.events if not isinstance(event, FilePart)]
                program.events[:] = rest
                program.remote.grant(2**20)
                await asyncio.wait(
                    {program.over, asyncio.ensure_future(program.changed.wait())}, return_when="FIRST_COMPLETED"
                )
            got += b"".join(event.part for event in program.events if isinstance(event, FilePart))
            assert got == data + b"!"
            assert [e.text for e in program.events if isinstance(e, Message)] == ["between", "after"]
            assert json.loads((await program.over).result or "") == ["some file", len(data), "go"]

    with_engine(body)


def test_a_client_that_reads_nothing_makes_its_inferlet_wait_and_nobody_else() -> None:
    source = """
from inferlet import session
async def main(input):
    for number in range(100):
        session.send(f"{number:03}" + "x" * 9_997)
        await session.drain()
    return "done"
"""

    async def body(supervisor: Supervisor) -> None:
        async with connected(supervisor) as connection:
            slow = await launched(connection, source, window=20_000)
            fast = await launched(connection, ECHO)
            for _ in range(20):
                await connection.tell(Send, fast.remote.instance, "x")
            await fast.until(21)
            await asyncio.sleep(0.2)
            assert [text[:3] for text in slow.texts] == ["000", "001"]
            for count in range(3, 101):
                slow.remote.grant(10_000)
                await slow.until(min(count, 100) - 1)
            slow.remote.grant(100_000)
            assert (await slow.over).result == '"done"'
            assert [text[:3] for text in slow.texts] == [f"{number:03}" for number in range(100)]

    with_engine(body)


def test_output_that_nobody_reads_is_dropped_from_its_beginning_and_says_so() -> None:
    source = "def main(input):\n    for n in range(60): print(f'{n:03}' + 'x' * 9_996, flush=True)\n    return 1"

    async def body(supervisor: Supervisor) -> None:
        async with connected(supervisor) as connection:
            program = await launched(connection, source, detached=True, window=1)
            await connection.tell(Detach, program.remote.instance)
            while (await connection.instances())[0].state == "running":
                await asyncio.sleep(0.02)
            later = Watched(connection, 2**20)
            await connection.attach(later.remote, program.remote.instance)
            assert (await later.over).result == "1"
            first, *rest = later.events
            assert sum(map(len, program.texts)) + first.dropped + sum(map(len, later.texts)) == 60 * 10_000
            assert (first.dropped > 0, {event.dropped for event in rest}) == (True, {0})
            assert sum(map(len, later.texts)) <= 2**18

    with_engine(body)


def test_a_detached_inferlet_goes_on_and_whoever_attaches_gets_the_rest() -> None:
    async def body(supervisor: Supervisor) -> None:
        async with connected(supervisor) as first:
            program = await launched(first, ECHO, detached=True)
            await program.until(1)
            with pytest.raises(ResourceError, match="has a client attached"):
                await first.attach(Watched(first).remote, program.remote.instance)
        async with connected(supervisor) as second:
            [row] = await second.instances()
            assert (row.instance, row.attached, row.state) == (program.remote.instance, False, "running")
            for text in ("a", "b", "stop"):
                await second.tell(Send, row.instance, text)
            again = Watched(second)
            await second.attach(again.remote, row.instance)
            assert ((await again.over).result, again.texts) == ('"stopped"', ["A", "B"])
            assert await second.instances() == ()
            for act in (Terminate, Detach):
                with pytest.raises(InvalidHandle):
                    await second.tell(act, row.instance)

    with_engine(body)


def test_what_has_ended_and_wasn_t_heard_goes_with_its_client_unless_it_is_detached() -> None:
    async def body(supervisor: Supervisor) -> None:
        async with connected(supervisor) as first, connected(supervisor) as second:
            source = "from inferlet import session\ndef main(input):\n    session.send('x')\n    return 1"
            await launched(first, source, window=0)
            kept = await launched(first, source, window=0, detached=True)
            while [row.state for row in await second.instances()] != ["done", "done"]:
                await asyncio.sleep(0.01)
            before, _ = await second.instances(), await asyncio.sleep(0.05)
            assert [row.seconds for row in await second.instances()] == [row.seconds for row in before]
            assert not any(row.attached for row in before if row.instance == kept.remote.instance)
            await first.close()
            while len(rows := await second.instances()) > 1:
                await asyncio.sleep(0.01)
            assert rows[0].instance == kept.remote.instance
            later = Watched(second)
            await second.attach(later.remote, kept.remote.instance)
            assert ((await later.over).result, later.texts) == ("1", ["x"])
            assert await second.instances() == ()

    with_engine(body)


def test_a_client_that_vanishes_at_any_moment_frees_what_its_inferlet_had_within_a_second() -> None:
    async def body(supervisor: Supervisor) -> None:
        for moment in ("at once", "in prefill", "in decode", "reading slowly"):
            await vanish(supervisor, moment)
            await settled(supervisor, 1.0)
        async with connected(supervisor) as connection:
            assert (await (await launched(connection, "def main(i): return 5")).over).result == "5"

    with_engine(body)


async def vanish(supervisor: Supervisor, moment: str) -> None:
    assert supervisor.address is not None
    reader, writer = await asyncio.open_unix_connection(supervisor.address.path)
    writer.write(framed(encode(Hello(1, "vanisher", supervisor.address.secret))))
    window = 30 if moment == "reading slowly" else 2**16
    prompt = 200 if moment == "in prefill" else 8
    writer.write(framed(encode(Launch(1, json.dumps({"prompt": prompt}), window, source=BUSY))))
    await writer.drain()
    if moment != "at once":
        got = b""
        while b"began" not in got or (moment != "in prefill" and b"token" not in got):
            got += await reader.read(2**16)
        if moment == "reading slowly":
            await asyncio.sleep(0.3)
        assert (await held(supervisor))["inferlets"] == 1, moment
    writer.transport.abort()


def test_terminating_frees_at_once_and_tells_who_is_attached() -> None:
    async def body(supervisor: Supervisor) -> None:
        async with connected(supervisor) as owner, connected(supervisor) as other:
            program = await launched(owner, BUSY, {"prompt": 8})
            await program.until(3)
            await other.tell(Terminate, program.remote.instance)
            assert isinstance(error_of(await program.over), errors.InferletCancelled)
            await settled(supervisor, 1.0)

    with_engine(body)


def test_a_request_with_a_wrong_field_is_refused_and_nothing_else_ends() -> None:
    wrong = [
        {"op": "launch", "id": 5, "input": "{}", "credit": 1, "program": "chat", "seed": -1},
        {"op": "signal", "id": 6, "instance": "a", "name": 5},
        {"op": "terminate", "id": 7, "instance": 5},
        {"op": "no such", "id": 8},
        {"op": "launch", "id": 9, "input": "{}", "credit": 1, "source": "def main(i): pass", "time": -1.0},
    ]

    async def body(supervisor: Supervisor) -> None:
        address = supervisor.address
        assert address is not None
        wire = await StreamWire.connect(address)
        wire.send(encode(Hello(1, "careless", address.secret)))
        wire.send(encode(Launch(4, "{}", 2**16, source=ECHO)))
        for one in wrong:
            wire.send(msgpack.packb(one))
        wire.send(encode(Status(10)))
        got: list[Any] = []
        while not any(isinstance(one, Message) for one in got) or not any(getattr(one, "id", 0) == 10 for one in got):
            got += map(from_server, await wire.receive())
        refused = [one for one in got if isinstance(one, Refused)]
        assert [(one.id, one.code) for one in refused] == [
            *((number, "protocol") for number in (5, 6, 7, 8)),
            (9, "usage"),
        ]
        assert "seed: -1 is no whole number" in refused[0].message
        await wire.close()

    with_engine(body)


def test_what_is_no_protocol_ends_that_connection_alone() -> None:
    async def body(supervisor: Supervisor) -> None:
        assert supervisor.address is not None
        for sent in (b"\xff\xff\xff\xff", framed(b"\xc1"), framed(encode(Status(1))), framed(b"")):
            reader, writer = await asyncio.open_unix_connection(supervisor.address.path)
            writer.write(sent)
            answer = await asyncio.wait_for(reader.read(), 5)
            refused = from_server(answer[4:])
            assert isinstance(refused, Refused), sent
            assert (refused.id, refused.code) == (0, "protocol"), sent
            writer.close()
        async with connected(supervisor) as connection:
            assert (await connection.status()).phase == "ready"

    with_engine(body)


def test_another_version_a_wrong_secret_and_a_second_hello_are_refused() -> None:
    async def body(supervisor: Supervisor) -> None:
        address = supervisor.address
        assert address is not None
        with pytest.raises(Unauthorized):
            await Connection.open(await StreamWire.connect(address), "test", "guess")
        wire = await StreamWire.connect(address)
        wire.send(encode(Hello(2, "of tomorrow", address.secret)))
        [refused] = map(from_server, await wire.receive())
        assert isinstance(refused, Refused)
        assert "speaks version 2 of the protocol" in refused.message
        await wire.close()
        wire = await StreamWire.connect(address)
        hello = encode(Hello(1, "twice", address.secret))
        wire.send(hello)
        wire.send(hello)
        got: list[Any] = []
        while not got or not isinstance(got[-1], Refused):
            got += map(from_server, await wire.receive())
        assert [type(one) for one in got] == [Welcome, State, Refused]
        with pytest.raises(Disconnected):
            await wire.receive()
        await wire.close()

    with_engine(body)
