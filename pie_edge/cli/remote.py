"""``pie-edge submit``, ``ps``, ``attach`` and ``kill``: inferlets on a server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pie_edge import remedies
from pie_edge.cli.inputs import parse_words, read_object
from pie_edge.cli.outcome import print_json, reported
from pie_edge.cli.output import Printed
from pie_edge.cli.progress import Notes
from pie_edge.errors import Unsupported, UsageError

if TYPE_CHECKING:
    from pie_edge.client import Client, Instance

Url = Annotated[str, typer.Option("--url", envvar="PIE_EDGE_URL", help="The server's address.", show_envvar=True)]
ApiKey = Annotated[str | None, typer.Option("--api-key", envvar="PIE_EDGE_API_KEY", help="Its API key, if it has one.")]
Lines = Annotated[
    bool, typer.Option("--lines", help="Begin a line for each message; without, they are pieces of one text.")
]
DEFAULT_URL = "http://127.0.0.1:8642"


@reported
def submit(
    context: typer.Context,
    program: Annotated[
        str, typer.Argument(metavar="PROGRAM", help="A Python file, or a program that the server knows by name.")
    ],
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    seed: Annotated[int | None, typer.Option(help="Makes random choices repeatable. [default: a new one]")] = None,
    input_file: Annotated[
        str | None, typer.Option("--input", metavar="FILE", help="A JSON file with the input; - is standard input.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--attach", help="Stay attached: show what it says, and end it when interrupted.")
    ] = False,
    lines: Lines = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
) -> None:
    """Start an inferlet on a server, and print its id. Words after -- are its input, as those of run."""
    given = (read_object(input_file) if input_file else {}) | parse_words(context.obj or [])
    runnable = _runnable(program)

    async def work(client: Client) -> None:
        if follow:
            await _follow(await client.launch(runnable, given, seed=seed), as_json, lines)
            return
        id = await client.submit(runnable, given, seed=seed)
        if as_json:
            print_json({"id": id})
        else:
            print(id)

    _with_client(url, api_key, work)


def _runnable(program: str) -> Path | str:
    """A file, or else a name, which has no slash. Raises UsageError for a file that isn't there."""
    path = Path(program)
    if path.exists():
        return path
    if path.name != program:
        raise UsageError(f"{program} is not there; name a Python file, or a program that the server knows by name")
    return program


@reported
def ps(
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
) -> None:
    """List the inferlets of a server."""

    async def work(client: Client) -> None:
        rows = await client.list()
        if as_json:
            print_json({"inferlets": [{name: getattr(row, name) for name in row.__slots__} for row in rows]})
            return
        table = [("ID", "NAME", "STATE", "SECONDS", "TOKENS", "CLIENT", "DEVICE")]
        for row in rows:
            tokens = row.usage.get("forwarded_tokens", 0)
            attached = "attached" if row.attached else ""
            table.append((row.instance, row.name, row.state, f"{row.seconds:.1f}", str(tokens), attached, row.device))
        widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
        for line in table:
            print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())

    _with_client(url, api_key, work)


@reported
def attach(
    id: Annotated[str, typer.Argument(metavar="ID", help="As `pie-edge ps` shows it.")],
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    lines: Lines = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
) -> None:
    """Show what an inferlet says, and its result; lines of standard input are messages to it. An interrupt leaves it running."""

    async def work(client: Client) -> None:
        instance = await client.attach(id)
        try:
            await _follow(instance, as_json, lines)
        except asyncio.CancelledError:
            with contextlib.suppress(Exception):
                await asyncio.wait_for(instance.detach(), 2)
            raise

    _with_client(url, api_key, work)


@reported
def kill(
    id: Annotated[str, typer.Argument(metavar="ID", help="As `pie-edge ps` shows it.")],
    signal: Annotated[
        str | None, typer.Option(metavar="NAME", help="Send this signal instead; the inferlet decides what it does.")
    ] = None,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """End an inferlet."""

    async def work(client: Client) -> None:
        await (client.signal(id, signal) if signal else client.terminate(id))

    _with_client(url, api_key, work)


async def _follow(instance: Instance, as_json: bool, lines: bool) -> None:
    """Until it ends."""
    notes = Notes()
    printed = Printed(notes, silent=as_json)

    async def outputs() -> None:
        async for output in instance.outputs():
            if output.dropped:
                notes.note(f"{output.dropped:,} characters of its output are lost: nobody was attached")
            (notes.log if output.log else printed)(output.text)

    async def messages() -> None:
        async for text in instance:
            printed(text if not lines or text.endswith("\n") else text + "\n")

    tasks = [asyncio.create_task(one()) for one in (outputs, messages)]
    with _lines_sent_to(instance):
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
    result = await instance.result()
    if as_json:
        print_json({"result": result.value, "text": printed.text, "tokens": result.usage, "id": instance.id})
    else:
        printed.finish(result.value)


@contextlib.contextmanager
def _lines_sent_to(instance: Instance) -> Any:
    """Lines of standard input as they come, where it can be waited for: a terminal, a pipe."""
    loop, sending = asyncio.get_running_loop(), set[Any]()

    def read() -> None:
        line = sys.stdin.readline()
        if not line:
            loop.remove_reader(sys.stdin)
            return
        task = loop.create_task(_send(instance, line.removesuffix("\n")))
        sending.add(task)
        task.add_done_callback(sending.discard)

    try:
        loop.add_reader(sys.stdin, read)
    except (NotImplementedError, OSError, ValueError):
        yield
        return
    try:
        yield
    finally:
        loop.remove_reader(sys.stdin)


async def _send(instance: Instance, text: str) -> None:
    from pie_edge.errors import PieError

    try:
        await instance.send(text)
    except PieError as error:
        Notes().note(error.message)


def _with_client(url: str, api_key: str | None, work: Callable[[Client], Coroutine[Any, Any, None]]) -> None:
    async def inside() -> None:
        async with _connected(url, api_key) as client:
            await work(client)

    asyncio.run(inside())


@asynccontextmanager
async def _connected(url: str, api_key: str | None) -> AsyncIterator[Client]:
    try:
        from pie_edge.client import connect
    except ModuleNotFoundError as error:
        raise Unsupported(f"this needs {error.name}; install it with: {remedies.install('server')}") from None
    async with connect(url, api_key or os.environ.get("PIE_EDGE_API_KEY")) as client:
        yield client
