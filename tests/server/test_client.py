"""The Python client against a whole server, and the commands that use it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import websockets

from pie_edge import errors
from pie_edge.client import Client, File, Output, Server, connect, inferlet
from pie_edge.client.websocket import address_of
from pie_edge.errors import Disconnected, InferletCancelled, NotReady, Unauthorized, UsageError
from pie_edge.protocol.codec import LONGEST, encode, from_server
from pie_edge.protocol.messages import Hello, Refused, Status
from pie_edge.server.serve import Serving
from tests.server.fronts import tiny_front

KEY = "sesame"


@inferlet
async def echo(input: dict[str, Any]) -> Any:
    from inferlet import session  # type: ignore[import-not-found]

    print("began", flush=True)
    while (text := await session.receive()) != "stop":
        session.send(text.upper())
    return input


@asynccontextmanager
async def client_of(server: Serving) -> AsyncIterator[Client]:
    while server.supervisor.state.phase != "ready":
        await asyncio.sleep(0.02)
    async with connect(server.url, KEY) as client:
        yield client


def with_client(body: Callable[[Serving, Client], Awaitable[None]]) -> None:
    async def inside() -> None:
        async with tiny_front(serve__api_keys=[KEY]) as server, client_of(server) as client:
            await body(server, client)

    asyncio.run(inside())


def test_a_program_runs_with_messages_output_files_signals_and_a_result() -> None:
    @inferlet
    async def everything(input: dict[str, Any]) -> Any:
        from inferlet import session

        print("printed")
        file = await session.receive_file()
        session.send_file("back", file.data[::-1])
        session.send(await session.receive())
        return [input["x"], file.name, await session.signal()]

    async def body(server: Serving, client: Client) -> None:
        assert (await client.status()).model is not None
        instance = await client.launch(everything, {"x": "é"}, seed=1)
        assert instance.name == "everything"
        data = os.urandom(3_000_000)
        await instance.send_file("some", data)
        assert await instance.receive_file() == File("back", data[::-1])
        await instance.send("hello")
        await instance.signal("now")
        assert [text async for text in instance] == ["hello"]
        result = await instance.result()
        assert (result.value, result.usage["passes"]) == (["é", "some", "now"], 0)
        assert [output async for output in instance.outputs()] == [Output("printed\n", False)]
        assert (await instance.receive(), await instance.receive_file()) == (None, None)

    with_client(body)


def test_a_connection_that_ends_takes_its_inferlets_along_but_not_the_detached() -> None:
    async def body(server: Serving, client: Client) -> None:
        async with connect(server.url, KEY) as other:
            mine = await other.launch(echo)
            kept = await other.launch(echo, {"kept": True}, detached=True)
            assert len(await client.list()) == 2
        with pytest.raises(Disconnected):
            await mine.result()
        while len(await client.list()) > 1:
            await asyncio.sleep(0.01)
        again = await client.attach(kept.id)
        await again.send("x")
        assert await again.receive() == "X"
        await again.detach()
        with pytest.raises(Disconnected, match="detached"):
            await again.receive()
        await client.terminate(kept.id)
        last = await client.attach(kept.id)
        with pytest.raises(InferletCancelled, match="terminated"):
            await last.result()

    with_client(body)


def test_what_was_submitted_waits_for_whoever_attaches_however_soon_it_ends() -> None:
    async def body(server: Serving, client: Client) -> None:
        ids = [await client.submit(inferlet(adds), {"x": number}) for number in range(5)]
        while any(row.state != "done" for row in await client.list()):
            await asyncio.sleep(0.01)
        assert [(await (await client.attach(id)).result()).value for id in ids] == [1, 2, 3, 4, 5]
        with pytest.raises(errors.InvalidHandle, match="it ended and somebody heard how, or it was never started"):
            await client.attach(ids[0])

    with_client(body)


def test_run_gives_the_value_and_ends_what_is_cancelled() -> None:
    async def body(server: Serving, client: Client) -> None:
        await client.install("echoes", echo)
        said: list[str] = []
        talking = asyncio.create_task(client.run("echoes", {"n": 1}, on_message=said.append))
        while not (rows := await client.list()):
            await asyncio.sleep(0.01)
        talking.cancel()
        await asyncio.gather(talking, return_exceptions=True)
        while await client.list():
            await asyncio.sleep(0.01)
        assert rows[0].name == "echoes"
        with pytest.raises(UsageError, match="no program 'nobody'"):
            await client.run("nobody")
        with pytest.raises(UsageError, match="no JSON form"):
            await client.run("echoes", {"x": object()})
        with pytest.raises(UsageError, match="no JSON form"):
            await client.run("echoes", {"x": float("nan")})
        with pytest.raises(errors.InferletFailed, match="KeyError"):
            await client.run(inferlet(fails))

    with_client(body)


def fails(input: dict[str, Any]) -> Any:
    return input["missing"]


def test_who_has_no_key_or_finds_no_server_is_told_by_type() -> None:
    async def body(server: Serving, client: Client) -> None:
        for key in (None, "guess"):
            with pytest.raises(Unauthorized, match="API key"):
                async with connect(server.url, key):
                    pass
        with pytest.raises(Disconnected, match="there is no server at http://127.0.0.1:9"):
            async with connect("http://127.0.0.1:9"):
                pass

    with_client(body)


def test_a_web_socket_that_speaks_something_else_is_closed_and_the_server_lives() -> None:
    hello = encode(Hello(1, "careless"))
    talks = [
        (["text"], 1003),
        ([b""], 1002),
        ([b"\xc1"], 1002),
        ([b"\x80"], 1002),
        ([encode(Status(1))], 1002),
        ([encode(Hello(2, "of tomorrow"))], 1002),
        ([hello, "text"], 1003),
        ([hello, b"\xc1"], 1002),
        ([hello, hello], 1002),
        ([hello, encode(Status(0))], 1002),
    ]

    async def body(server: Serving, client: Client) -> None:
        for said, code in talks:
            heard, closed = await talk(server, said)
            refused = heard[-1]
            assert isinstance(refused, Refused), said
            assert (refused.id, refused.code, closed) == (0, "protocol", code), said
            assert refused.message, said
        # Its bytes aren't looked at: there is nothing to answer.
        assert (await talk(server, [hello, b"x" * (LONGEST + 1)]))[1] == 1009
        assert (await client.status()).phase == "ready"

    with_client(body)


async def talk(server: Serving, said: Sequence[str | bytes]) -> tuple[list[Any], int | None]:
    """What a WebSocket hears after it said that, until it is closed, and the code it is closed with."""
    address = address_of(server.url)
    async with websockets.connect(address, additional_headers={"x-api-key": KEY}, proxy=None) as socket:
        heard: list[Any] = []
        with suppress(websockets.exceptions.ConnectionClosed):
            for one in said:
                await socket.send(one)
            while True:
                heard.append(from_server(await socket.recv(decode=False)))
        return heard, socket.close_code


def test_an_argument_of_another_type_is_refused_here_and_nothing_ends() -> None:
    async def body(server: Serving, client: Client) -> None:
        other: Any = client
        instance: Any = await client.launch(echo)
        wrong: list[tuple[Callable[[], Awaitable[Any]], str]] = [
            (lambda: other.launch(echo, seed=-1), "launch: seed: -1 is no whole number"),
            (lambda: other.launch(echo, seed="x"), "launch: seed: 'x'"),
            (lambda: other.launch(echo, time=-1), "time is -1 s"),
            (lambda: other.launch(echo, memory=1.5), "launch: memory: 1.5"),
            (lambda: other.launch(echo, name=5), "launch: name: 5"),
            (lambda: other.launch(echo, [1]), "the input is list; give a dict"),
            (lambda: other.submit(echo, time=-1), "time is -1 s"),
            (lambda: other.run(123, {}), "123 is no program"),
            (lambda: other.install("x", "y"), "'y' is no program"),
            (lambda: other.install(5, echo), "install: name: 5"),
            (lambda: other.signal(5, "x"), "signal: instance: 5"),
            (lambda: other.terminate(5), "terminate: instance: 5"),
            (lambda: other.attach(None), "attach: instance: None"),
            (lambda: other.ask("metrics", object()), "no JSON form"),
            (lambda: instance.signal(5), "signal: name: 5"),
            (lambda: instance.send(5), "send: text: 5"),
            (lambda: instance.send_file("x", "text"), "a file is bytes"),
        ]
        for act, said in wrong:
            with pytest.raises(UsageError, match=said):
                await act()
        await instance.send("x")
        assert await instance.receive() == "X"

    with_client(body)


def test_a_server_whose_model_loads_says_so() -> None:
    async def body() -> None:
        async with tiny_front("slow") as server:
            while server.supervisor.address is None:
                await asyncio.sleep(0.01)
            async with connect(server.url) as client:
                assert (await client.status()).phase == "loading"
                with pytest.raises(NotReady):
                    await client.launch(echo)

    asyncio.run(body())


class TinyServer(Server):
    def _command(self) -> tuple[str, ...]:
        program = "from pie_edge.server.__main__ import main; from tests.server.engines import TINY; main(TINY)"
        return (sys.executable, "-c", program)


def test_a_server_of_one_s_own_starts_and_ends_with_its_block() -> None:
    async def body() -> None:
        async with TinyServer("tiny", {"serve.queue": 7}) as server:
            async with server.connect() as client:
                assert await client.run(inferlet(adds), {"x": 1}) == 2
            with pytest.raises(Unauthorized):
                async with connect(server.url):
                    pass
        with pytest.raises(Disconnected):
            async with connect(server.url, server.api_key):
                pass
        for model, settings, kind in (
            ("broken", {}, errors.BadCheckpoint),
            ("tiny", {"serve.queue": -1}, errors.ConfigError),
            ("tiny", {"bogus": 1}, errors.ConfigError),
        ):
            with pytest.raises(kind):
                async with TinyServer(model, settings):
                    pass
        with pytest.raises(errors.ConfigError, match='^settings: pooling is "max"; it must be'):
            async with TinyServer("tiny", {"pooling": "max"}):
                pass

    asyncio.run(body())


def adds(input: dict[str, int]) -> int:
    return input["x"] + 1


def test_the_commands_submit_list_attach_and_kill() -> None:
    async def body(server: Serving, client: Client) -> None:
        async def cli(*words: str, stdin: str = "") -> tuple[int, str, str]:
            process = await asyncio.to_thread(
                subprocess.run,
                [sys.executable, "-P", "-m", "pie_edge.cli", *words],
                input=stdin,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
                env={**os.environ, "PIE_EDGE_URL": server.url, "PIE_EDGE_API_KEY": KEY},
            )
            return process.returncode, process.stdout, process.stderr

        await client.install("echoes", echo)
        status, id, _ = await cli("submit", "echoes", "--", "--x", "1")
        assert status == 0
        status, table, _ = await cli("ps")
        assert table.splitlines()[1].split()[:3] == [id.strip(), "echoes", "running"]
        status, shown, err = await cli("attach", id.strip(), "--json", stdin="hello\nstop\n")
        assert (status, json.loads(shown)["result"], json.loads(shown)["text"]) == (0, {"x": 1}, "began\nHELLO"), err
        status, id, _ = await cli("submit", "echoes")
        status, shown, err = await cli("attach", id.strip(), "--lines", stdin="one\ntwo\nstop\n")
        assert (status, shown) == (0, "began\nONE\nTWO\n"), err
        status, id, _ = await cli("submit", "echoes")
        assert (await cli("kill", id.strip()))[0] == 0
        assert (await cli("kill", "nobody"))[0] == 1
        status, _, err = await cli("submit", "nothing")
        assert (status, "no program 'nothing' here" in err) == (2, True)
        status, _, err = await cli("ps", "--api-key", "guess")
        assert (status, "the API key is wrong" in err) == (1, True)

    with_client(body)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://127.0.0.1:8642", "ws://127.0.0.1:8642/ws"),
        ("https://example.org/pie/", "wss://example.org/pie/ws"),
        ("localhost:1", "ws://localhost:1/ws"),
        ("ws://h/ws", "ws://h/ws"),
    ],
)
def test_a_server_s_address_is_that_of_its_web_socket(url: str, address: str) -> None:
    assert address_of(url) == address


@pytest.mark.parametrize("url", ["ftp://x", "http://"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(UsageError):
        address_of(url)
