"""A server from its start to its end: the engine's process, the port, and the draining."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager

import uvicorn
from starlette.types import ASGIApp

from pie_edge.config import Settings
from pie_edge.errors import PieError, UsageError
from pie_edge.protocol.codec import LONGEST
from pie_edge.protocol.messages import State
from pie_edge.server import app, health, ws
from pie_edge.server.access import check_reach
from pie_edge.server.admission import Admission, room
from pie_edge.server.completion import CompletionService
from pie_edge.server.gate import Gate, Refuse
from pie_edge.server.http import protocol
from pie_edge.server.link import Link
from pie_edge.server.supervisor import ENGINE, Supervisor
from pie_edge.server.watching import Watching

_POLL_SECONDS = 0.05


class Serving:
    """A server that listens. ``url`` is where."""

    def __init__(self, url: str, supervisor: Supervisor, gate: Gate, server: uvicorn.Server, drain: float) -> None:
        self.url = url
        self.supervisor = supervisor
        self._gate = gate
        self._server = server
        self.drain = drain
        self._asked = asyncio.Event()
        self._at_once = asyncio.Event()

    def stop(self) -> None:
        """The first time requests under way are let finish; the second time it ends at once."""
        if self._asked.is_set():
            self._at_once.set()
        self._asked.set()

    async def run(self) -> None:
        """Until it was stopped, and then until the last request is answered or its time is up. Raises what the engine's first
        start failed with."""
        asked = asyncio.create_task(self._asked.wait())
        try:
            ready = asyncio.create_task(self.supervisor.ready())
            await asyncio.wait({asked, ready}, return_when=asyncio.FIRST_COMPLETED)
            if ready.done():
                ready.result()
            else:
                ready.cancel()
            await asked
        finally:
            asked.cancel()
        self._gate.draining = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.drain):
                await self._drained()

    async def _drained(self) -> None:
        while not self._at_once.is_set() and (self._gate.working or await self._inferlets()):
            await asyncio.sleep(_POLL_SECONDS)

    async def _inferlets(self) -> bool:
        """Whether clients are attached to some."""
        try:
            return any(row.attached for row in await self.supervisor.connection.instances())
        except PieError:
            return False


@asynccontextmanager
async def serving(
    settings: Settings,
    on_state: Callable[[State], None] = lambda state: None,
    command: Sequence[str] = ENGINE,
) -> AsyncIterator[Serving]:
    """It listens, and its model loads. Raises UsageError for an address that can't be listened on."""
    serve = settings.serve
    check_reach(serve.host, serve.api_keys)
    listener = _listen(serve.host, serve.port)
    admission = Admission(serve.generations or room(), serve.queue)
    # In this order: what is watched over it is put together when the engine has ended.
    with contextlib.closing(listener), contextlib.closing(Watching(serve, lambda: supervisor, admission)) as watching:
        supervisor = Supervisor(settings, on_state, command)
        try:
            link = Link(supervisor, admission)
            routes = [
                health.route(lambda: supervisor.state, lambda: built.gate.draining, lambda: supervisor.starts),
                ws.route(lambda: supervisor),
                *watching.routes,
            ]
            built = app.build(watching.of(CompletionService(link, link.card)), serve, routes)
            server = _Server(_config(watching.around(built.asgi), built.refuse))
            listening = asyncio.create_task(server.serve(sockets=[listener]))
            host, port = listener.getsockname()[:2]
            named = f"[{host}]" if ":" in host else host
            try:
                await _until_started(server, listening)
                yield Serving(f"http://{named}:{port}", supervisor, built.gate, server, serve.drain)
            finally:
                server.should_exit = server.force_exit = True
                await asyncio.gather(listening, return_exceptions=True)
        finally:
            await supervisor.close()


async def _until_started(server: uvicorn.Server, listening: asyncio.Task[None]) -> None:
    """uvicorn sets a flag, and tells nobody."""
    while not server.started:
        if listening.done():
            await listening
            raise UsageError("the server didn't start; its log says why")
        await asyncio.sleep(0.005)


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """What a signal does is ours to say: draining comes before the port closes."""
        yield


def _config(asgi: ASGIApp, refuse: Refuse) -> uvicorn.Config:
    return uvicorn.Config(
        asgi,
        # One thread carries 256 streams with asyncio's own loop; h11 is pure Python and is everywhere.
        loop="asyncio",
        http=protocol(refuse),
        ws="websockets-sansio",
        # The protocol's own bound; compressing tokens would cost more than they weigh.
        ws_max_size=LONGEST,
        ws_per_message_deflate=False,
        # The gate watches over requests and admission over generations: a limit here would answer in nobody's format.
        limit_concurrency=None,
        backlog=1024,
        # Longer than clients' own 5 to 60 s, so that it is they who close: a request never meets a closing connection.
        timeout_keep_alive=75,
        lifespan="off",
        proxy_headers=False,
        server_header=False,
        access_log=False,
        # Its own would take the place of ours (see ``logs``).
        log_config=None,
        log_level="warning",
        timeout_graceful_shutdown=1,
    )


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise UsageError(f"--host {host} can't be listened on: {error}") from None
    try:
        if hasattr(socket, "SO_REUSEADDR") and socket.SO_REUSEADDR and not hasattr(socket, "SO_EXCLUSIVEADDRUSE"):
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host.strip("[]"), port))
        listener.set_inheritable(False)
    except OSError as error:
        listener.close()
        raise UsageError(
            f"{host}, port {port} can't be listened on: {error.strerror or error}; choose another with --port, or --port 0"
        ) from None
    return listener


def on_signals(stop: Callable[[], None]) -> None:
    """An interrupt or a request to end stops the server."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            loop.add_signal_handler(number, stop)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop))
