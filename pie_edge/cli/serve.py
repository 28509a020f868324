"""``pie-edge serve``: the model over HTTP and WebSocket, until it is interrupted."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pie_edge import remedies
from pie_edge.cli.options import GenerationConfig, Pooling
from pie_edge.cli.outcome import reported
from pie_edge.cli.progress import Notes
from pie_edge.config import Settings, load
from pie_edge.errors import Unsupported

if TYPE_CHECKING:
    from pie_edge.protocol.messages import State


@reported
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on. [default: 127.0.0.1]")] = None,
    port: Annotated[str | None, typer.Option(help="Port to listen on; 0 takes a free one. [default: 8642]")] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", help="A model by name, or a file.")] = None,
    adapter: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FOLDER", help="A low-rank adapter to load beside the model; may be given again."),
    ] = None,
    backend: Annotated[str | None, typer.Option(help="auto, cuda, metal, vulkan, wgpu or cpu. [default: auto]")] = None,
    device: Annotated[
        str | None, typer.Option(help="The backend's device, or several with commas: index or part of a name.")
    ] = None,
    pooling: Pooling = None,
    generation_config: GenerationConfig = None,
    api_key: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="A key of which clients have to give one; may be given again."),
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(metavar="ORIGIN", help="Web pages that may use the server; may be given again."),
    ] = None,
    generations: Annotated[
        str | None, typer.Option(metavar="COUNT", help="Requests worked on at once. [default: up to 64]")
    ] = None,
    queue: Annotated[str | None, typer.Option(metavar="COUNT", help="Requests that may wait. [default: 1024]")] = None,
    max_time: Annotated[
        str | None, typer.Option(metavar="SECONDS", help="Seconds that one request or inferlet may take.")
    ] = None,
    allow_http: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST[:PORT]", help="A host that inferlets may send HTTP requests to; may be given again."
        ),
    ] = None,
    log: Annotated[str | None, typer.Option(metavar="FORM", help="human or json. [default: human]")] = None,
    log_tokens: Annotated[
        bool, typer.Option("--log-tokens", help="Log the ids of the tokens read and chosen: what people wrote.")
    ] = False,
    profile: Annotated[
        str | None, typer.Option(metavar="OUT.json", help="Write a timeline there, for ui.perfetto.dev.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No notes on stderr, only errors.")] = False,
) -> None:
    """Serve a model: OpenAI's, Anthropic's and Google's APIs, and inferlets.

    An interrupt lets running requests finish; a second one ends at once.
    """
    flags: dict[str, Any] = {
        "serve.host": host,
        "serve.port": port,
        "serve.api_keys": api_key or None,
        "serve.cors": cors or None,
        "serve.generations": generations,
        "serve.queue": queue,
        "serve.log": log,
        "serve.log_tokens": log_tokens or None,
        "serve.profile": profile,
        "model": model,
        "adapters": adapter or None,
        "backend": backend,
        "device": device,
        "pooling": pooling,
        "generation_config": generation_config,
        "limits.time": max_time,
        "limits.http": allow_http or None,
    }
    settings = load(flags).settings
    notes = LoggedNotes(quiet=quiet) if settings.serve.log == "json" else Notes(quiet=quiet)
    asyncio.run(_serve(settings, notes))


class LoggedNotes(Notes):
    """Notes as events of the log."""

    _last = ""

    def note(self, text: str) -> None:
        from pie_edge.server import logs

        if not self.quiet:
            logs.event("note", text, message=text)

    def __call__(self, done: int, total: int, what: str) -> None:
        """How far loading is, health says: a log has no bar that moves. What has no length, as an engine's end, is told once."""
        if not total and what != self._last:
            self.note(what)
        self._last = what


class Told:
    """What the engine's states come to, for people. Where the server listens is told once the engine has something to work on:
    one that ends at once, for want of a driver say, serves nobody."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._works = False
        self._url = ""

    def __call__(self, state: State) -> None:
        self._works |= bool(state.what) or state.phase == "ready"
        self._tell_where()
        if state.phase == "loading" and state.what:
            self._notes(state.done, state.total, state.what)
        elif state.model is not None:
            self._notes.note(f"{state.model.name} on {state.model.backend} ({state.model.device}) is ready")

    def listens(self, url: str) -> None:
        self._url = url
        self._tell_where()

    def _tell_where(self) -> None:
        if self._works and self._url:
            self._notes.note(f"listening on {self._url}")
            self._url = ""


async def _serve(settings: Settings, notes: Notes) -> None:
    try:
        from pie_edge.server import logs
        from pie_edge.server.serve import on_signals, serving
    except ModuleNotFoundError as error:
        raise Unsupported(f"the server needs {error.name}; install it with: {remedies.install('server')}") from None

    logs.configure("json" if settings.serve.log == "json" else "human", quiet=notes.quiet)
    told = Told(notes)
    async with serving(settings, told) as server:
        on_signals(lambda: _stop(server, notes))
        told.listens(server.url)
        await server.run()
    notes.note("ended")


def _stop(server: Any, notes: Notes) -> None:
    notes.note("ending when running requests have finished; interrupt again to end at once")
    server.stop()
