"""What the server's front costs a step: the longest that anything keeps the engine's loop from it.

    python -m benchmarks.front MODEL [STREAMS]

Two set-ups: the front in a process of its own (as ``pie-edge serve``), and in the engine's process, on its loop. In each,
STREAMS chats are answered while bodies of 100,000 tokens come in. Of every callback of the engine's loop the time of its
thread's CPU is taken, which other processes of the machine don't lengthen. ``Schedule._turn`` is a turn of guests, and
``Engine._serve`` makes steps: both are there without a server, too. A first load, which isn't counted, imports and compiles
what is used.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import sys
import time
from asyncio import events
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import uvicorn

from pie_edge.config import Settings, load
from pie_edge.server import app
from pie_edge.server.admission import Admission
from pie_edge.server.completion import CompletionService
from pie_edge.server.engine.opened import Opened, open_model
from pie_edge.server.engine.process import main
from pie_edge.server.generation import Card
from pie_edge.server.serve import serving

LONG_TOKENS = 100_000
BODIES = 3


class Probe:
    """The longest callbacks of this process's loop, in milliseconds of CPU, by what they are."""

    def __init__(self) -> None:
        self.longest: dict[str, float] = defaultdict(float)
        run = events.Handle._run

        def timed(handle: Any) -> None:
            callback = handle._callback
            began = time.thread_time()
            run(handle)
            spent = 1000 * (time.thread_time() - began)
            name = _name(callback)
            if spent > self.longest[name]:
                self.longest[name] = spent

        events.Handle._run = timed  # type: ignore[method-assign,assignment]

    def told(self) -> str:
        told = dict(sorted(self.longest.items(), key=lambda one: -one[1])[:6])
        self.longest.clear()
        return json.dumps(told)


def _name(callback: Any) -> str:
    task = getattr(callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        return f"task {getattr(task.get_coro(), '__qualname__', task)}"
    return str(getattr(callback, "__qualname__", callback))


async def open_probed(settings: Settings, progress: Any) -> Opened:
    opened, probe = await open_model(settings, progress), Probe()
    return Opened(opened.host, opened.card, {**opened.answers, "probe": lambda _: probe.told()}, opened.close)


class Here:
    """Inferlets in the process of the front: what the server would be without a second one."""

    def __init__(self, opened: Opened, admission: Admission) -> None:
        self._opened = opened
        self._admission = admission

    def card(self) -> Card:
        card = self._opened.card
        return Card(card.name, card.context, card.created, card.chat, card.embeds)

    async def run(self, program: str, input: Mapping[str, Any]) -> AsyncGenerator[str, None]:
        from pie_edge.server.completion import program_folder

        async with self._admission.turn():
            instance = self._opened.host.launch(program_folder(program), json.dumps(input))
            try:
                while (message := await instance.receive()) is not None:
                    yield message
                await instance.result()
            finally:
                instance.cancel("its client has gone")


async def apart(settings: Settings, streams: int) -> dict[str, float]:
    async with serving(settings, command=(sys.executable, "-m", "benchmarks.front", "engine")) as server:
        running = asyncio.create_task(server.run())
        await server.supervisor.ready()
        ask = server.supervisor.connection.ask
        await load_from_outside(server.url, settings.model, 2)
        await ask("probe")
        await load_from_outside(server.url, settings.model, streams)
        told: dict[str, float] = json.loads(await ask("probe"))
        server.stop()
        server.stop()
        await running
        return told


async def together(settings: Settings, streams: int) -> dict[str, float]:
    opened, probe = await open_model(settings, lambda done, total, what: None), Probe()
    here = Here(opened, Admission(settings.serve.generations, 1024))
    built = app.build(CompletionService(here, here.card), settings.serve, [])
    server = uvicorn.Server(uvicorn.Config(built.asgi, port=0, log_level="warning", lifespan="off", http="h11"))
    serving_task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    await load_from_outside(f"http://127.0.0.1:{port}", settings.model, 2)
    probe.told()
    await load_from_outside(f"http://127.0.0.1:{port}", settings.model, streams)
    told: dict[str, float] = json.loads(probe.told())
    server.should_exit = True
    await serving_task
    await opened.close()
    return told


async def load_from_outside(url: str, model: str, streams: int) -> None:
    process = multiprocessing.get_context("spawn").Process(target=generate, args=(url, Path(model).stem, streams))
    process.start()
    await asyncio.to_thread(process.join)
    if process.exitcode:
        raise SystemExit(f"the load generator failed with status {process.exitcode}")


def generate(url: str, model: str, streams: int) -> None:
    asyncio.run(_generate(url, model, streams))


async def _generate(url: str, model: str, streams: int) -> None:
    host, port = url.removeprefix("http://").split(":")

    async def post(content: str, count: int) -> bytes:
        messages = [{"role": "user", "content": content}]
        body = json.dumps({"model": model, "messages": messages, "max_tokens": count, "stream": True}).encode()
        reader, writer = await asyncio.open_connection(host, int(port), limit=2**22)
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        answer = await reader.read(-1)
        writer.close()
        return answer

    chats = [asyncio.create_task(post(f"{number}: say something.", 24)) for number in range(streams)]
    await asyncio.sleep(2)
    for _ in range(BODIES):
        refused = await post("word " * LONG_TOKENS, 1)
        assert b" 400 " in refused.split(b"\r\n")[0], refused[:300]
    for answer in await asyncio.gather(*chats):
        assert b"[DONE]" in answer, answer[:300]


def measure(model: str, streams: int) -> None:
    flags = {"model": model, "backend": "cpu", "serve.port": 0, "serve.generations": 64}
    settings = load(flags, dict(os.environ)).settings
    for name, way in (("two processes", apart), ("one process", together)):
        told = asyncio.run(way(settings, streams))
        print(f"\n{name}, {streams} streams: longest callbacks of the engine's loop, ms of CPU")
        for what, spent in told.items():
            print(f"  {spent:8.2f}  {what}")


if __name__ == "__main__":
    if sys.argv[1] == "engine":
        main(open_probed)
    else:
        measure(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 16)
