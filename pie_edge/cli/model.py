"""``pie-edge model``: the models of this machine's store."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pie_edge.cli.outcome import reported
from pie_edge.cli.progress import Notes
from pie_edge.config import load

if TYPE_CHECKING:
    from pie_edge.weights.checkpoint import Checkpoint
    from pie_edge.weights.store import ModelEntry

app = typer.Typer(help="Models: import, list, show, remove.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.command("import")
@reported
def import_(
    source: Annotated[str, typer.Argument(help="A built-in name, a file, a folder, or a repository (org/name).")],
    name: Annotated[str | None, typer.Option("--name", help="What to call it. [default: from the source]")] = None,
    copy: Annotated[bool, typer.Option("--copy", help="Copy a file of this disk instead of referring to it.")] = False,
    as_json: Json = False,
) -> None:
    """Make a model known: a GGUF or safetensors checkpoint, from disk or fetched."""
    from pie_edge.weights.hub import import_model

    entry = import_model(source, name, copy=copy, progress=Notes())
    if as_json:
        _print_json(_entry(entry))
    else:
        print(f"{entry.name}: {entry.path} ({_mebibytes(_size(entry))})")


@app.command("list")
@reported
def list_(as_json: Json = False) -> None:
    """List the models here, and the built-in ones that aren't fetched yet."""
    from pie_edge.weights.catalogue import BUILT_IN
    from pie_edge.weights.hub import list_models

    here = list_models()
    absent = [model for model in BUILT_IN.values() if model.name not in {entry.name for entry in here}]
    if as_json:
        fetchable = [{"name": model.name, "bytes": model.nbytes, "licence": model.licence} for model in absent]
        _print_json({"models": [_entry(entry) for entry in here], "built_in": fetchable})
        return
    rows = [(entry.name, _mebibytes(_size(entry)), entry.source) for entry in here]
    rows += [(model.name, _mebibytes(model.nbytes), "built in, fetched on first use") for model in absent]
    width = max((len(row[0]) for row in rows), default=0)
    for name, size, about in rows:
        print(f"{name:<{width}}  {size:>10}  {about}")


@app.command("show")
@reported
def show(
    name: Annotated[str, typer.Argument(help="A model's name, or a checkpoint's path.")],
    backend: Annotated[str | None, typer.Option(help="Where it would run. [default: the setting]")] = None,
    device: Annotated[str | None, typer.Option(help="One of the backend's devices. [default: the setting]")] = None,
    as_json: Json = False,
) -> None:
    """Show what a checkpoint holds, whether this version can run it, and what it will need of a device."""
    from pie_edge.cli import needs
    from pie_edge.weights.checkpoint import open_checkpoint
    from pie_edge.weights.hub import find

    settings = load({"backend": backend, "device": device}).settings
    entry = find(name)
    with open_checkpoint(entry.path) as checkpoint:
        facts = _entry(entry) | describe(checkpoint)
        needed = needs.told(checkpoint, settings, named=backend is not None or device is not None)
    if as_json:
        _print_json(facts | {"needs": needed})
        return
    if why := facts.pop("unpooled"):
        facts["pooling"] = f"none: {why}"
    rows = [(label, _cell(label, value)) for label, value in facts.items()] + needs.lines(needed)
    width = max(len(label) for label, _ in rows)
    for label, told in rows:
        print(f"{label:<{width}}  {told}")


@app.command("remove")
@reported
def remove(name: Annotated[str, typer.Argument(help="The model's name.")], as_json: Json = False) -> None:
    """Forget a model, and delete the files that were fetched or copied for it."""
    from pie_edge.weights.hub import remove as forget

    forget(name)
    if as_json:
        _print_json({"removed": name})
    else:
        print(f"{name}: removed")


def describe(checkpoint: Checkpoint) -> dict[str, Any]:
    """Facts of a checkpoint. One that can't be run is described too, with the reason."""
    from pie_edge.errors import ModelError
    from pie_edge.model import registry
    from pie_edge.model.pooling import pooling
    from pie_edge.model.recommended import recommended
    from pie_edge.text import open_text

    tensors, pooled = checkpoint.tensors.values(), pooling(checkpoint)
    encodings = Counter[str]()
    for tensor in tensors:
        encodings[tensor.encoding] += tensor.nbytes
    facts: dict[str, Any] = {
        "architecture": checkpoint.architecture,
        "container": checkpoint.container,
        "parameters": sum(_elements(tensor.shape) for tensor in tensors),
        "weight_bytes": checkpoint.nbytes,
        "encodings": dict(encodings.most_common()),
        "licence": _licence(checkpoint),
        "chat_template": _template(checkpoint),
        "pooling": pooled.kind or None,
        "unpooled": pooled.reason or None,
    }
    try:
        facts["sampling"] = dict(recommended(checkpoint))
        spec = registry.read(registry.facts(checkpoint))
        open_text(checkpoint, spec.vocabulary)
    except ModelError as error:
        return facts | {"runs": False, "reason": error.message}
    shown = ("context", "vocabulary", "layers", "hidden", "heads", "kv_heads", "head_dim", "mlp", "tied")
    return facts | {fact: getattr(spec, fact) for fact in shown} | {"runs": True}


def _elements(shape: tuple[int, ...]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count


def _licence(checkpoint: Checkpoint) -> str | None:
    stated = checkpoint.metadata.get("general.license")
    return stated if isinstance(stated, str) else None


def _template(checkpoint: Checkpoint) -> str | None:
    """The chat template's source."""
    if checkpoint.container == "gguf":
        found = checkpoint.metadata.get("tokenizer.chat_template")
    elif isinstance(path := checkpoint.metadata.get("chat_template.jinja"), Path):
        found = path.read_text(encoding="utf-8", errors="replace")
    else:
        found = checkpoint.metadata.get("tokenizer_config.json", {}).get("chat_template")
    return found if isinstance(found, str) else None


def _entry(entry: ModelEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "path": str(entry.path),
        "source": entry.source,
        "bytes": _size(entry),
        "owned": entry.owned,
    }


def _size(entry: ModelEntry) -> int:
    if entry.nbytes or not entry.path.is_dir():
        return entry.nbytes or entry.path.stat().st_size
    return sum(file.stat().st_size for file in entry.path.iterdir() if file.is_file())


def _mebibytes(nbytes: int) -> str:
    return f"{nbytes / 2**20:,.1f} MiB"


def _cell(label: str, value: Any) -> str:
    """A fact for people."""
    if label == "chat_template":
        return f"yes, {len(value)} characters" if value else "none"
    if label == "sampling":
        return ", ".join(f"{name} {number:g}" for name, number in value.items()) or "none"
    if label == "encodings":
        return ", ".join(f"{name} {_mebibytes(nbytes)}" for name, nbytes in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return _mebibytes(value) if label.endswith("bytes") else f"{value:,}"
    return "unknown" if value is None else str(value)


def _print_json(value: dict[str, Any]) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2))
