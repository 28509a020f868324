"""``pie-edge batch``: a file of requests, answered into another file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pie_edge import remedies
from pie_edge.cli import interrupts
from pie_edge.cli.options import GenerationConfig, Pooling
from pie_edge.cli.outcome import FAILED, reported
from pie_edge.cli.progress import Notes
from pie_edge.config import Settings, load
from pie_edge.errors import Unsupported

if TYPE_CHECKING:
    from pie_edge.protocol.messages import State
    from pie_edge.server.batch.calls import Call
    from pie_edge.server.batch.work import Tally


@reported
def batch(
    requests: Annotated[Path, typer.Argument(metavar="REQUESTS", help="A file with a request on each line, as JSON.")],
    answers: Annotated[Path, typer.Argument(metavar="ANSWERS", help="The file that answers are appended to.")],
    model: Annotated[str | None, typer.Option("--model", "-m", help="A model by name, or a file.")] = None,
    backend: Annotated[str | None, typer.Option(help="auto, cuda, metal, vulkan, wgpu or cpu. [default: auto]")] = None,
    device: Annotated[
        str | None, typer.Option(help="The backend's device, or several with commas: index or part of a name.")
    ] = None,
    pooling: Pooling = None,
    generation_config: GenerationConfig = None,
    parallel: Annotated[int, typer.Option(min=1, max=4096, help="Requests under way at once.")] = 64,
    url: Annotated[str | None, typer.Option("--url", help="A running server, instead of one for this batch.")] = None,
    api_key: Annotated[
        str | None, typer.Option("--api-key", envvar="PIE_EDGE_API_KEY", help="Its API key, if it has one.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No notes on stderr, only errors.")] = False,
) -> None:
    """Answer a file of requests in the format of OpenAI's batches.

    Answers come as they are ready. The same command goes on where an earlier one was interrupted.
    """
    flags = {"model": model, "backend": backend, "device": device}
    settings = load({**flags, "pooling": pooling, "generation_config": generation_config}).settings
    notes = Notes(quiet=quiet)
    try:
        tally = interrupts.run(_run(requests, answers, parallel, url, api_key, settings, notes))
    except KeyboardInterrupt:
        notes.note(f"interrupted; what was answered is in {answers}, and the same command goes on from there")
        raise
    notes.note(f"{tally.done - tally.failed} answered, {tally.failed} failed, {tally.before} were done before")
    if tally.failed:
        raise typer.Exit(FAILED)


async def _run(
    requests: Path,
    answers: Path,
    parallel: int,
    url: str | None,
    api_key: str | None,
    settings: Settings,
    notes: Notes,
) -> Tally:
    try:
        from pie_edge.server.batch import calls, lines, work
    except ModuleNotFoundError as error:
        raise Unsupported(f"batches need {error.name}; install it with: {remedies.install('server')}") from None
    lines.resume(answers)  # before a model loads: are the files what they should be?
    sum(1 for _ in lines.read(requests))

    def report(tally: Tally) -> None:
        notes(tally.before + tally.done, tally.total, "answering requests")

    async def work_with(call: Call) -> Tally:
        return await work.Batch(call, parallel, report).run(requests, answers)

    if url is not None:
        return await work_with(calls.Remote(url, api_key, parallel))
    async with _own_server(settings, notes) as call:
        return await work_with(call)


@asynccontextmanager
async def _own_server(settings: Settings, notes: Notes) -> AsyncIterator[Call]:
    from pie_edge.server.batch.application import application
    from pie_edge.server.batch.calls import InProcess

    def heard(state: State) -> None:
        if state.phase == "loading" and state.what:
            notes(state.done, state.total, state.what)
        elif state.model is not None:
            notes.note(f"{state.model.name} on {state.model.backend} ({state.model.device}) is ready")

    async with application(settings, heard) as app:
        yield InProcess(app)
