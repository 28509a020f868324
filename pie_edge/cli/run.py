"""``pie-edge run``: one inferlet from its source, to its end."""

from __future__ import annotations

import secrets
import stat
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pie_edge.cli import interrupts
from pie_edge.cli.inputs import parse_words, read_object
from pie_edge.cli.outcome import error_object, print_json, reported, status, tell
from pie_edge.cli.output import Printed, summary
from pie_edge.cli.progress import Notes
from pie_edge.config import Settings, load
from pie_edge.errors import UsageError
from pie_edge.profile import traced

if TYPE_CHECKING:
    from pie_edge.runtime import RunResult, Runtime

SEED_BITS = 32


@dataclass(frozen=True)
class Request:
    """What one ``pie-edge run`` asks for."""

    file: Path
    input: dict[str, Any]
    settings: Settings
    seed: int
    json: bool = False
    quiet: bool = False
    profile: Path | None = None


Opener = Callable[..., Awaitable["Runtime"]]


@reported
def run(
    context: typer.Context,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The inferlet's Python source, or a folder with a main.py.")
    ],
    model: Annotated[str | None, typer.Option("--model", "-m", help="A model by name, or a file.")] = None,
    adapter: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FOLDER", help="A low-rank adapter to load beside the model; may be given again."),
    ] = None,
    backend: Annotated[str | None, typer.Option(help="auto, cuda, metal, vulkan, wgpu or cpu. [default: auto]")] = None,
    device: Annotated[
        str | None, typer.Option(help="The backend's device, or several with commas: index or part of a name.")
    ] = None,
    tune: Annotated[
        bool | None,
        typer.Option(
            "--tune/--no-tune", help="Measure kernel variants on a GPU's first use, or skip it. [default: --tune]"
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Makes random choices repeatable. [default: a new one]")] = None,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="Only what computes the same bits alone and in a batch.")
    ] = False,
    max_time: Annotated[
        str | None, typer.Option(metavar="SECONDS", help="Seconds the inferlet may take; 0 is no limit.")
    ] = None,
    allow_http: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST[:PORT]", help="A host that the inferlet may send HTTP requests to; may be given again."
        ),
    ] = None,
    input_file: Annotated[
        str | None, typer.Option("--input", metavar="FILE", help="A JSON file with the input; - is standard input.")
    ] = None,
    profile: Annotated[
        Path | None,
        typer.Option(
            metavar="OUT.json", help="Write a timeline there, for ui.perfetto.dev: queue, steps, device, guests."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No notes on stderr, only errors.")] = False,
) -> None:
    """Run an inferlet. Words after -- are its input: -- --prompt "Hello" --max-tokens 8

    Values are typed as JSON where they parse; --key=value takes one that begins with dashes; --key:text keeps one as
    text; --key alone is true, --no-key false; a key given again makes a list.
    """
    flags = {
        "model": model,
        "adapters": adapter or None,
        "backend": backend,
        "device": device,
        "deterministic": deterministic or None,
        "tune": tune,
        "limits.time": max_time,
        "limits.http": allow_http or None,
    }
    request = Request(
        file=_source(file),
        input=(read_object(input_file) if input_file else {}) | parse_words(context.obj or []),
        settings=load(flags).settings,
        seed=_seed(seed),
        json=as_json,
        quiet=quiet,
        profile=profile,
    )
    from pie_edge.runtime import open_runtime

    raise typer.Exit(interrupts.run(execute(request, open_runtime)))


def _source(file: Path) -> Path:
    if file.is_dir() and (file / "main.py").is_file():
        return file / "main.py"
    if problem := _unusable(file):
        raise UsageError(f"{file} {problem}; name the inferlet's Python source")
    return file


def _unusable(file: Path) -> str:
    """Why it can't be an inferlet's source, or nothing."""
    try:
        mode = file.stat().st_mode
    except FileNotFoundError:
        return f"is a link to {file.readlink()}, which is not there" if file.is_symlink() else "is not there"
    except OSError as error:
        return f"can't be reached ({error.strerror})"
    if stat.S_ISDIR(mode):
        return "is a folder without a main.py"
    return "" if stat.S_ISREG(mode) else "is a device or a pipe, not a file"


def _seed(given: int | None) -> int:
    if given is None:
        return secrets.randbits(SEED_BITS)
    if not 0 <= given < 2**SEED_BITS:
        raise UsageError(f"--seed is {given}; it must be from 0 to {2**SEED_BITS - 1}")
    return given


async def execute(request: Request, open_runtime: Opener) -> int:
    """The exit status. With ``--json``, an error is an object on stdout too, with the text that came before it."""
    notes = Notes(quiet=request.quiet)
    printed = Printed(notes, silent=request.json)
    try:
        result = await _run(request, open_runtime, notes, printed)
    except Exception as error:
        notes.clear()
        if not request.json:
            raise
        print_json(error_object(error) | ({"text": printed.text} if printed.text else {}))
        tell(error)
        return status(error)
    if request.json:
        print_json(result)
    return 0


async def _run(request: Request, open_runtime: Opener, notes: Notes, printed: Printed) -> dict[str, Any]:
    settings = request.settings
    with traced(request.profile, "pie-edge run") as trace:
        runtime = await open_runtime(
            settings.model, settings, backend=settings.backend, device=settings.device or None, progress=notes
        )
        try:
            if trace is not None:
                runtime.follow(trace)
            notes.note(f"{settings.model} on {runtime.choice}")
            for sentence in runtime.engine.less:
                notes.note(sentence)
            outcome = await runtime.run(
                request.file, request.input, seed=request.seed, on_text=printed, on_log=notes.log
            )
            if not request.json:
                printed.finish(outcome.result)
                notes.note(summary(outcome.usage, outcome.timings))
            return _report(request, runtime, outcome, printed.text)
        finally:
            await runtime.close()


def _report(request: Request, runtime: Runtime, outcome: RunResult, text: str) -> dict[str, Any]:
    choice = runtime.choice
    return {
        "result": outcome.result,
        "text": text,
        "tokens": outcome.usage,
        "swap_rate": outcome.swap_rate,
        "timings": {name: round(seconds, 6) for name, seconds in outcome.timings.items()},
        "model": request.settings.model,
        "backend": choice.backend,
        "device": choice.named,
        "passed_over": {one.backend: one.reason for one in choice.passed_over},
        "seed": request.seed,
    }
