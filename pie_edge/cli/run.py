"""``pie-edge run``: one inferlet from its source, to its end."""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pie_edge.cli.inputs import parse_words, read_object
from pie_edge.cli.outcome import error_object, reported, status, tell
from pie_edge.cli.progress import Notes
from pie_edge.config import Settings, load
from pie_edge.errors import UsageError

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


Opener = Callable[..., Awaitable["Runtime"]]


@reported
def run(
    context: typer.Context,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The inferlet's Python source, or a folder with a main.py.")
    ],
    model: Annotated[str | None, typer.Option("--model", "-m", help="A model by name, or a file.")] = None,
    backend: Annotated[str | None, typer.Option(help="auto, cuda, metal, vulkan, wgpu or cpu. [default: auto]")] = None,
    device: Annotated[str | None, typer.Option(help="One of the backend's devices: index or part of its name.")] = None,
    seed: Annotated[int | None, typer.Option(help="Makes random choices repeatable. [default: a new one]")] = None,
    max_time: Annotated[
        str | None, typer.Option(metavar="SECONDS", help="Seconds the inferlet may take; 0 is no limit.")
    ] = None,
    input_file: Annotated[
        str | None, typer.Option("--input", metavar="FILE", help="A JSON file with the input; - is standard input.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No notes on stderr, only errors.")] = False,
) -> None:
    """Run an inferlet. Words after -- are its input: -- --prompt "Hello" --max-tokens 8

    Values are typed as JSON where they parse; --key:text keeps one as text; --key alone is true, --no-key false; a key
    given again makes a list.
    """
    flags = {"model": model, "backend": backend, "device": device, "limits.time": max_time}
    request = Request(
        file=_source(file),
        input=(read_object(input_file) if input_file else {}) | parse_words(context.obj or []),
        settings=load(flags).settings,
        seed=_seed(seed),
        json=as_json,
        quiet=quiet,
    )
    from pie_edge.runtime import open_runtime

    raise typer.Exit(asyncio.run(execute(request, open_runtime)))


def _source(file: Path) -> Path:
    if file.is_dir() and (file / "main.py").is_file():
        return file / "main.py"
    if not file.is_file():
        kind = "a folder without a main.py" if file.is_dir() else "not there"
        raise UsageError(f"{file} is {kind}; name the inferlet's Python source")
    return file


def _seed(given: int | None) -> int:
    if given is None:
        return secrets.randbits(SEED_BITS)
    if not 0 <= given < 2**SEED_BITS:
        raise UsageError(f"--seed is {given}; it must be from 0 to {2**SEED_BITS - 1}")
    return given


class Printed:
    """The inferlet's text as it comes, on stdout; with ``--json`` it is only gathered."""

    def __init__(self, notes: Notes, *, silent: bool) -> None:
        self.text = ""
        self.notes = notes
        self.silent = silent

    def __call__(self, piece: str) -> None:
        self.text += piece
        if not self.silent:
            self.notes.clear()
            sys.stdout.write(piece)
            sys.stdout.flush()

    def finish(self, result: Any) -> None:
        """The result under the text, unless the text was it already."""
        told = shown(result)
        streamed = self.text.rstrip("\n")
        if streamed and not self.text.endswith("\n"):
            sys.stdout.write("\n")
        if told and told.strip() != streamed.strip():
            print(told)


def shown(result: Any) -> str:
    """A result for people: text as it is, also when it is all that an object holds; anything else as JSON."""
    if isinstance(result, dict) and set(result) == {"text"}:
        result = result["text"]
    if result is None:
        return ""
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, indent=2)


async def execute(request: Request, open_runtime: Opener) -> int:
    """The exit status. With ``--json``, an error is an object on stdout too."""
    notes = Notes(quiet=request.quiet or request.json)
    try:
        result = await _run(request, open_runtime, notes)
    except Exception as error:
        notes.clear()
        if not request.json:
            raise
        print(json.dumps(error_object(error), ensure_ascii=False))
        tell(error)
        return status(error)
    if request.json:
        print(json.dumps(result, ensure_ascii=False))
    return 0


async def _run(request: Request, open_runtime: Opener, notes: Notes) -> dict[str, Any]:
    settings = request.settings
    runtime = await open_runtime(
        settings.model, settings, backend=settings.backend, device=settings.device or None, progress=notes
    )
    try:
        notes.note(f"{settings.model} on {runtime.choice}")
        printed = Printed(notes, silent=request.json)
        outcome = await runtime.run(request.file, request.input, seed=request.seed, on_text=printed)
        if not request.json:
            printed.finish(outcome.result)
            sys.stdout.flush()
            notes.note(_summary(outcome))
        return _report(request, runtime, outcome, printed.text)
    finally:
        await runtime.close()


def _summary(outcome: RunResult) -> str:
    """``32 tokens, the first after 0.21 s, then 41.3 a second``; what an inferlet without a forward pass has not is left."""
    parts = [f"{outcome.usage['sampled']} tokens"]
    if "time_to_first_token" in outcome.timings:
        parts.append(f"the first after {outcome.timings['time_to_first_token']:.2f} s")
    if "tokens_per_second" in outcome.timings:
        parts.append(f"then {outcome.timings['tokens_per_second']:.1f} a second")
    return ", ".join(parts)


def _report(request: Request, runtime: Runtime, outcome: RunResult, text: str) -> dict[str, Any]:
    choice = runtime.choice
    return {
        "result": outcome.result,
        "text": text,
        "tokens": outcome.usage,
        "timings": {name: round(seconds, 6) for name, seconds in outcome.timings.items()},
        "model": request.settings.model,
        "backend": choice.backend,
        "device": choice.device,
        "passed_over": {one.backend: one.reason for one in choice.passed_over},
        "seed": request.seed,
    }
