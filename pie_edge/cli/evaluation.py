"""``pie-edge eval``: how well a model foretells a text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from pie_edge.cli import interrupts
from pie_edge.cli.outcome import print_json, reported
from pie_edge.cli.progress import Notes
from pie_edge.config import Settings, load
from pie_edge.errors import InferletFailed, UsageError, by_code

_LARGEST = 8 * 2**20
"""Bytes of a text: it goes to the inferlet in one piece."""


@reported
def evaluate(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A text, in UTF-8.")],
    model: Annotated[str | None, typer.Option("--model", "-m", help="A model by name, or a file.")] = None,
    window: Annotated[
        int | None,
        typer.Option(min=3, help="Tokens that the model sees at once. [default: 1024, or its context if that is less]"),
    ] = None,
    stride: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens from one window to the next, a window at most. [default: half a window]"),
    ] = None,
    backend: Annotated[str | None, typer.Option(help="auto, cuda, metal, vulkan, wgpu or cpu. [default: auto]")] = None,
    device: Annotated[
        str | None, typer.Option(help="The backend's device, or several with commas: index or part of a name.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No notes on stderr, only errors.")] = False,
) -> None:
    """Measure a model's perplexity over a text, and the bits it would need for each byte of it."""
    flags = {"model": model, "backend": backend, "device": device, "limits.time": "0"}
    sizes = {"window": window, "stride": stride}
    input: dict[str, Any] = {"text": _read(file), **{name: size for name, size in sizes.items() if size is not None}}
    notes = Notes(quiet=quiet)
    settings = load(flags).settings
    found = interrupts.run(_measure(settings, input, notes))
    if as_json:
        print_json({**found, "file": str(file), "model": settings.model})
    else:
        print(_told(found))


def _read(file: Path) -> str:
    try:
        data = file.read_bytes()
        text = data.decode("utf-8")
    except OSError as error:
        raise UsageError(f"{file} can't be read ({error.strerror}); name a text file") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is no UTF-8: {error.reason} at byte {error.start}; convert it") from error
    if not text:
        raise UsageError(f"{file} is empty; name a text to measure on")
    if len(data) > _LARGEST:
        raise UsageError(f"{file} has {len(data):,} bytes; the most is {_LARGEST:,}, so measure on a part of it")
    return text


async def _measure(settings: Settings, input: dict[str, Any], notes: Notes) -> dict[str, Any]:
    """What the inferlet ``perplexity`` says."""
    from pie_edge import resources
    from pie_edge.runtime import open_runtime

    runtime = await open_runtime(
        settings.model, settings, backend=settings.backend, device=settings.device or None, progress=notes
    )
    try:
        notes.note(f"{settings.model} on {runtime.choice}")
        for sentence in runtime.engine.less:
            notes.note(sentence)
        instance = runtime.host.launch(resources.inferlets() / "perplexity", input, on_log=notes.log)
        while (message := await instance.receive()) is not None:
            told = json.loads(message)
            notes(told["done"], told["of"], "scoring tokens")
        outcome = await instance.result()
        return dict(outcome.result)
    except InferletFailed as error:
        # What it refuses is the caller's to mend: where in its program it did so is no help.
        if error.cause is None:
            raise
        raise by_code(error.cause)(error.message) from None
    finally:
        notes.clear()
        await runtime.close()


def _told(found: dict[str, Any]) -> str:
    return "\n".join(
        [
            f"perplexity     {found['perplexity']:.4f} a token",
            f"bits per byte  {found['bits_per_byte']:.4f}",
            f"nats per token {found['nats_per_token']:.4f}",
            f"tokens         {found['tokens']}, {found['scored']} of them scored",
            f"windows        {found['window']} tokens, {found['stride']} apart",
        ]
    )
