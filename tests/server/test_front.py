"""The server's front: what it refuses, who waits, who vanishes, how it ends; over real sockets, with a real engine's process."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import signal
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from pie_edge.client import Program, connect
from pie_edge.config import load
from pie_edge.errors import Disconnected
from pie_edge.protocol.wire import ENGINE_ENDED
from pie_edge.server import logs
from pie_edge.server.logs import LOGGER
from pie_edge.server.serve import Serving, serving
from tests.server.fronts import CHAT, SCRIPTS, answer, ask, asking, chat, front, text_of, tiny_front, write_model

LONG = "".join(SCRIPTS["long"])


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


def on_front(model: Path, body: Callable[[Serving], Awaitable[None]], **settings: Any) -> None:
    async def inside() -> None:
        async with front(model, **settings) as server:
            await body(server)

    asyncio.run(inside())


async def idle(server: Serving, seconds: float = 1.0) -> None:
    """Within so long no inferlet is left."""
    end = asyncio.get_running_loop().time() + seconds
    while rows := await server.supervisor.connection.instances():
        assert asyncio.get_running_loop().time() < end, rows
        await asyncio.sleep(0.02)


def test_what_may_not_be_asked_is_refused_in_the_provider_s_shape(scripted: Path) -> None:
    async def body(server: Serving) -> None:
        url = server.url
        answered = await ask(url, "POST", CHAT, chat("[short]"))
        assert (answered.status, answered.json["error"]["message"][:15]) == (401, "the API key is ")
        assert answered.headers["www-authenticate"] == "Bearer"
        answered = await ask(url, "POST", CHAT, chat("[short]"), authorization="Bearer sesame", x_request_id="mine-1")
        assert (answered.status, answered.headers["x-request-id"]) == (200, "mine-1")
        assert answered.json["choices"][0]["message"]["content"] == "yes."
        answered = await ask(url, "POST", CHAT, b"x" * 2000, x_api_key="sesame")
        assert answered.status == 413
        assert "the most is 1,024" in answered.json["error"]["message"]
        answered = await ask(url, "GET", "/v1/models?key=sesame", x_request_id="bad id\x7f")
        assert answered.status == 200
        assert re.fullmatch("[A-Za-z0-9_]{16,}", answered.headers["x-request-id"])
        answered = await ask(url, "GET", "/v1/models", x_api_key="sesame", host="evil.example")
        assert answered.status == 403
        answered = await ask(url, "POST", CHAT, chat("[short]"), x_api_key="sesame", origin="https://evil.example")
        assert answered.status == 403
        answered = await ask(url, "GET", "/v1/nothing", x_api_key="sesame")
        assert (answered.status, answered.json["error"]["type"]) == (404, "invalid_request_error")
        answered = await ask(url, "PUT", CHAT, x_api_key="sesame")
        assert (answered.status, answered.headers["allow"]) == (405, "POST")
        answered = await ask(url, "GET", "/../../etc/passwd", x_api_key="sesame")
        assert answered.status == 404
        health = await ask(url, "GET", "/health")
        assert (health.status, health.json["status"], health.json["model"]["name"]) == (200, "ready", "scripted")

    on_front(scripted, body, serve__api_keys=["other", "sesame"], serve__body=1024)


def test_a_body_that_is_too_long_is_refused_before_it_came_and_in_chunks_too(scripted: Path) -> None:
    async def body(server: Serving) -> None:
        async with asking(server.url, "POST", CHAT, content_length="999999999") as (reader, _):
            assert (await answer(reader)).status == 413
        chunks = {"transfer_encoding": "chunked", "content_length": ""}
        async with asking(server.url, "POST", CHAT, **chunks) as (reader, writer):
            assert (await answer(reader)).status == 400
        host, port = server.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            f"POST {CHAT} HTTP/1.1\r\nhost: {host}\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n".encode()
        )
        for _ in range(5):
            writer.write(b"200\r\n" + b"x" * 0x200 + b"\r\n")
        assert (await answer(reader)).status == 413
        writer.close()

    on_front(scripted, body, serve__body=1024)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("moment", ["prefill", "decode"])
def test_a_client_that_vanishes_ends_its_inferlet_within_a_second(scripted: Path, moment: str, stream: bool) -> None:
    async def body(server: Serving) -> None:
        prompt = "x" * 700 + "[long]" if moment == "prefill" else "[long]"
        async with asking(server.url, "POST", CHAT, chat(prompt, stream=stream)) as (reader, writer):
            if moment == "decode" and stream:
                await reader.readuntil(b"w3 ")
            else:
                while not await server.supervisor.connection.instances():
                    await asyncio.sleep(0.001)
            writer.transport.abort()
        await idle(server)
        assert server._gate.working == 0
        assert (await ask(server.url, "POST", CHAT, chat("[short]"))).status == 200

    on_front(scripted, body)


def test_a_client_that_vanishes_while_it_waits_leaves_the_queue(scripted: Path) -> None:
    async def body(server: Serving) -> None:
        async with asking(server.url, "POST", CHAT, chat("[long]", stream=True)) as (first, _):
            await first.readuntil(b"w1 ")
            async with asking(server.url, "POST", CHAT, chat("[long]")) as (_, second):
                while server._gate.working < 2:
                    await asyncio.sleep(0.01)
                refused = await ask(server.url, "POST", CHAT, chat("[short]"))
                assert (refused.status, "retry-after" in refused.headers) == (429, True)
                counting = {"model": "scripted", "messages": [{"role": "user", "content": "Hi"}]}
                counted = await ask(server.url, "POST", "/v1/messages/count_tokens", json.dumps(counting).encode())
                assert (counted.status, counted.json["input_tokens"] > 0) == (200, True)
                second.transport.abort()
                while server._gate.working > 1:
                    await asyncio.sleep(0.01)
            assert (await ask(server.url, "POST", CHAT, chat("[short]"))).status == 200

    on_front(scripted, body, serve__generations=1, serve__queue=1)


@pytest.mark.slow
def test_256_streams_at_once_all_finish_and_one_that_reads_slowly_holds_nobody_up(scripted: Path) -> None:
    async def body(server: Serving) -> None:
        async with asking(server.url, "POST", CHAT, chat("[long]", stream=True)) as (slow, _):
            await slow.readuntil(b"w0 ")
            short = [ask(server.url, "POST", CHAT, chat(f"{number} [short]", stream=True)) for number in range(256)]
            for answered in await asyncio.gather(*short):
                assert (answered.status, text_of(answered.body)) == (200, "yes.")
            rest = await slow.read(-1)
            assert b"w199 " in rest
            assert rest.rstrip().endswith(b"0")
        await idle(server)

    on_front(scripted, body, serve__generations=8)


def test_stopping_lets_running_requests_finish_and_takes_no_more(scripted: Path) -> None:
    async def body(server: Serving) -> None:
        async with asking(server.url, "POST", CHAT, chat("[long]", stream=True)) as (reader, _):
            await reader.readuntil(b"w0 ")
            server.stop()
            while not server._gate.draining:
                await asyncio.sleep(0.01)
            refused = await ask(server.url, "POST", CHAT, chat("[short]"))
            assert (refused.status, "retry-after" in refused.headers) == (503, True)
            health = await ask(server.url, "GET", "/health")
            assert (health.status, health.json["status"]) == (503, "draining")
            assert b"w199 " in await reader.read(-1)

    on_front(scripted, body)


def test_being_told_twice_to_stop_ends_it_at_once(scripted: Path) -> None:
    async def body() -> None:
        flags = {"model": str(scripted), "backend": "cpu", "serve.port": 0, "serve.drain": 1000.0}
        async with serving(load(flags, {}).settings) as server:
            running = asyncio.create_task(server.run())
            await server.supervisor.ready()
            async with asking(server.url, "POST", CHAT, chat("[long]", stream=True)) as (reader, _):
                await reader.readuntil(b"w0 ")
                server.stop()
                done, _ = await asyncio.wait({running}, timeout=0.1)
                assert not done
                server.stop()
                await asyncio.wait_for(running, 2)

    asyncio.run(body())


def test_a_request_has_one_id_for_its_client_and_for_the_log(
    scripted: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LOGGER, "propagate", True)
    body_of = {"max_tokens": 5, "messages": [{"role": "user", "content": "[short]"}]}

    async def body(server: Serving) -> None:
        with caplog.at_level("INFO", LOGGER.name):
            for model, given in (("scripted", "mine-1"), ("scripted", ""), ("nobody", "mine-2"), ("nobody", "")):
                sent = json.dumps(body_of | {"model": model}).encode()
                answered = await ask(server.url, "POST", "/v1/messages", sent, x_request_id=given)
                id = answered.headers["x-request-id"]
                assert (answered.headers["request-id"], id.startswith(given or "req_")) == (id, True)
                assert answered.json.get("request_id", id) == id
                assert f"[{id}]" in caplog.messages[-1]

    on_front(scripted, body)


def test_a_web_socket_of_another_s_page_is_refused_and_no_error_is_logged(scripted: Path) -> None:
    wanted = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec_websocket_key": "dGhlIHNhbXBsZSBub25jZQ==",
        "sec_websocket_version": "13",
    }
    stream = io.StringIO()

    async def body(server: Serving) -> None:
        logs.configure("json", stream)
        for foreign in ({"host": "evil.example"}, {"origin": "https://evil.example"}):
            answered = await ask(server.url, "GET", "/ws", **wanted, **foreign)
            assert (answered.status, answered.json["error"]["code"]) == (403, "usage")
        logs.UVICORN.error("something else")

    loggers = (logs.LOGGER, logs.UVICORN)
    before = [(logger.handlers, logger.propagate, logger.level) for logger in loggers]
    try:
        on_front(scripted, body)
    finally:
        for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
            logger.handlers, logger.propagate = handlers, propagate
            logger.setLevel(level)
    assert [json.loads(line)["message"] for line in stream.getvalue().splitlines() if '"error"' in line] == [
        "something else"
    ]


ASKED: dict[str, dict[str, Any]] = {
    CHAT: {"model": "scripted", "messages": [{"role": "user", "content": "[long]"}], "stream": True},
    "/v1/responses": {"model": "scripted", "input": "[long]", "stream": True},
    "/v1/messages": {
        "model": "scripted",
        "max_tokens": 300,
        "messages": [{"role": "user", "content": "[long]"}],
        "stream": True,
    },
    "/v1beta/models/scripted:streamGenerateContent?alt=sse": {
        "contents": [{"role": "user", "parts": [{"text": "[long]"}]}]
    },
}


def test_what_was_under_way_in_an_engine_that_is_killed_says_so(scripted: Path) -> None:
    async def body(server: Serving) -> None:
        async with connect(server.url) as client, AsyncExitStack() as stack:
            streams = [
                await stack.enter_async_context(asking(server.url, "POST", path, json.dumps(sent).encode()))
                for path, sent in ASKED.items()
            ]
            for reader, _ in streams:
                await reader.readuntil(b"w0 ")
            whole = asyncio.create_task(ask(server.url, "POST", CHAT, chat("[long]")))
            waiting = await client.launch(WAITS)
            while server._gate.working < len(streams) + 1:
                await asyncio.sleep(0.005)
            assert server.supervisor.pid is not None
            os.kill(server.supervisor.pid, signal.SIGKILL)
            for reader, _ in streams:
                assert ENGINE_ENDED.encode() in await asyncio.wait_for(reader.read(-1), 20)
            answered = await whole
            assert (answered.status, answered.json["error"]["message"]) == (503, ENGINE_ENDED)
            for ask_it in (waiting.result, waiting.receive, client.list):
                with pytest.raises(Disconnected, match=re.escape(ENGINE_ENDED)):
                    await ask_it()

    on_front(scripted, body)


WAITS = Program("waits", "async def main(input):\n    from inferlet import session\n    await session.receive()")


def test_an_engine_that_is_killed_leaves_a_server_that_says_so_and_comes_back(scripted: Path) -> None:
    async def body(server: Serving) -> None:
        async with asking(server.url, "POST", CHAT, chat("[long]", stream=True)) as (reader, _):
            await reader.readuntil(b"w0 ")
            waiting = asyncio.create_task(ask(server.url, "POST", CHAT, chat("[short]")))
            while server._gate.working < 2:
                await asyncio.sleep(0.005)
            assert server.supervisor.pid is not None
            os.kill(server.supervisor.pid, signal.SIGKILL)
            rest = await reader.read(-1)
            assert b"connection" in rest or b"engine" in rest
            assert b"[DONE]" not in rest.split(b"error")[0]
            assert (await waiting).status == 503
        health = await ask(server.url, "GET", "/health")
        assert (health.status, health.json["status"]) == (503, "loading")
        assert (await ask(server.url, "POST", CHAT, chat("[short]"))).status == 503
        while server.supervisor.state.phase != "ready":
            await asyncio.sleep(0.05)
        health = await ask(server.url, "GET", "/health")
        assert (health.status, health.json["engine_starts"]) == (200, 2)
        assert (await ask(server.url, "POST", CHAT, chat("[short]"))).json["choices"][0]["message"]["content"] == "yes."

    on_front(scripted, body, serve__generations=1)


def test_health_says_how_far_a_model_is_that_loads() -> None:
    async def body() -> None:
        async with tiny_front("slow") as server:
            while (await ask(server.url, "GET", "/health")).json["progress"]["total"] == 0:
                await asyncio.sleep(0.02)
            health = await ask(server.url, "GET", "/health")
            assert (health.status, health.headers["retry-after"]) == (503, "1")
            assert health.json["status"] == "loading"
            assert health.json["progress"] == {"what": "reading nothing", "done": 0, "total": 2}
            assert (await ask(server.url, "POST", CHAT, chat("[short]"))).status == 503

    asyncio.run(body())


def test_pages_of_named_origins_may_use_it_and_others_get_no_permission(scripted: Path) -> None:
    async def body(server: Serving) -> None:
        wanted = {"access_control_request_method": "POST", "access_control_request_headers": "authorization"}
        asked = await ask(server.url, "OPTIONS", CHAT, origin="https://ours.example", **wanted)
        assert (asked.status, asked.headers["access-control-allow-origin"]) == (200, "https://ours.example")
        asked = await ask(server.url, "POST", CHAT, chat("[short]"), origin="https://ours.example", x_api_key="k")
        assert asked.headers["access-control-allow-origin"] == "https://ours.example"
        asked = await ask(server.url, "OPTIONS", CHAT, origin="https://evil.example", **wanted)
        assert "access-control-allow-origin" not in asked.headers
        assert json.loads((await ask(server.url, "GET", "/health")).body)["status"] == "ready"

    on_front(scripted, body, serve__cors=["https://ours.example"], serve__api_keys=["k"])
