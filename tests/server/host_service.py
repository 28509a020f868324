"""The server's endpoints over a model in this process, on loopback: what tests of wire formats talk to.

``serve(service, routes)`` runs uvicorn in a thread; ``scripted_service`` is a model that says what the tests want
(``tests/support/scripted.py``).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Route

from pie_edge.config import Settings
from pie_edge.runtime import Runtime, open_runtime
from pie_edge.server.completion import CompletionService, program_folder
from pie_edge.server.generation import Card, Service

CREATED = 1_700_000_000


class HostLauncher:
    """Inferlets on a runtime of this loop. ``launched`` counts them, ``usage`` is what the last one used."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.inputs: list[Mapping[str, Any]] = []
        self.usage: dict[str, int] = {}

    async def run(self, program: str, input: Mapping[str, Any]) -> AsyncGenerator[str, None]:
        self.inputs.append(input)
        instance = self.runtime.host.launch(program_folder(program), input, name=program)
        try:
            while (message := await instance.receive()) is not None:
                yield message
            outcome = await instance.result()
            self.usage = {
                name: getattr(outcome.usage, name) for name in ("forwarded_tokens", "cached_tokens", "passes")
            }
        finally:
            instance.cancel("its client has gone")


def card_of(runtime: Runtime) -> Card:
    facts = runtime.engine.facts
    host = runtime.host
    return Card(
        name=facts.name,
        context=runtime.engine.abilities.longest,
        created=CREATED,
        chat=host.chats,
        embeds=bool(facts.pooling),
        thinks=host.thinks,
        description=facts.description,
        unpooled=facts.unpooled,
        hidden=facts.hidden,
        vocabulary=facts.vocabulary,
        sampling=dict(facts.sampling),
        tools=host.takes_tools,
    )


@asynccontextmanager
async def model_service(model: Path, **settings: Any) -> AsyncGenerator[tuple[Service, HostLauncher], None]:
    """A service of a checkpoint, in the running loop."""
    runtime = await open_runtime(str(model), Settings(**{"backend": "cpu", **settings}))
    launcher = HostLauncher(runtime)
    try:
        yield CompletionService(launcher, lambda: card_of(runtime)), launcher
    finally:
        await runtime.close()


class Served:
    """``url`` is where the routes are; ``call`` runs a coroutine function in the server's loop."""

    def __init__(self, url: str, launcher: HostLauncher, service: Service, loop: asyncio.AbstractEventLoop) -> None:
        self.url = url
        self.launcher = launcher
        self.service = service
        self.loop = loop

    def until(self, holds: Callable[[], bool], seconds: float = 5.0) -> None:
        """Waits for what the server is about to do. Fails if it doesn't."""
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, "it never happened"
            time.sleep(0.01)


@contextmanager
def serving(model: Path, routes: Callable[[Service], Sequence[Route]], **settings: Any) -> Iterator[Served]:
    """The routes over a model, by uvicorn in a thread with a loop of its own, as long as the block runs."""
    ready, ended = threading.Event(), threading.Event()
    found: dict[str, Any] = {}

    async def body() -> None:
        async with model_service(model, **settings) as (service, launcher):
            server = uvicorn.Server(
                uvicorn.Config(
                    Starlette(routes=routes(service)), port=0, log_level="warning", lifespan="off", ws="none"
                )
            )
            task = asyncio.create_task(server.serve())
            while not server.started:
                if task.done():
                    await task
                await asyncio.sleep(0.005)
            port = server.servers[0].sockets[0].getsockname()[1]
            found["served"] = Served(f"http://127.0.0.1:{port}", launcher, service, asyncio.get_running_loop())
            found["server"] = server
            ready.set()
            await task

    def run() -> None:
        try:
            asyncio.run(body())
        except BaseException as error:
            found["error"] = error
        finally:
            ready.set()
            ended.set()

    thread = threading.Thread(target=run, name="server")
    thread.start()
    ready.wait()
    try:
        if "error" in found:
            raise found["error"]
        yield found["served"]
    finally:
        if "server" in found:
            found["server"].should_exit = True
        thread.join()
    if "error" in found:
        raise found["error"]
