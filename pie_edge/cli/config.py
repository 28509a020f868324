"""``pie-edge config``: write a commented file of all settings, and show those in force and where each is from."""

from __future__ import annotations

import json
import textwrap
from typing import Annotated

import typer

from pie_edge.cli.outcome import reported
from pie_edge.config import KEYS, Configuration, Key, config_path, load
from pie_edge.config_values import ANY_TEXT, HIDDEN
from pie_edge.errors import UsageError

app = typer.Typer(help="Settings: write a commented file, or show what is in force.", no_args_is_help=True)

HEADER = """\
# Settings of pie-edge. Each is shown with its default; remove the # to change it.
# Flags come before PIE_EDGE_… environment variables, those before this file.
"""
WIDTH = 100


def template() -> str:
    """The file that ``config init`` writes: valid TOML that changes nothing until a line is uncommented."""
    parts, table = [HEADER], ""
    for key in KEYS.values():
        group, _, member = key.name.rpartition(".")
        if group != table:
            parts.append(f"[{group}]\n")
            table = group
        accepts = "" if key.kind.expects == ANY_TEXT else f" Accepts {key.kind.expects}."
        about = textwrap.wrap(key.doc + accepts, WIDTH - 2)
        parts.append("".join(f"# {line}\n" for line in about) + f"#{member} = {key.kind.write(key.default)}\n")
    return "\n".join(parts)


def reference() -> str:
    """The table of ``docs/configuration.md``."""
    rows = ["| setting | default | accepts | environment variable | meaning |", "|---|---|---|---|---|"]
    for key in KEYS.values():
        rows.append(f"| `{key.name}` | `{_written(key)}` | {key.kind.expects} | `{key.variable}` | {key.doc} |")
    return "\n".join(rows) + "\n"


def _written(key: Key) -> str:
    return str(key.kind.write(key.default))


@app.command("init")
@reported
def init(
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file that is there.")] = False,
    stdout: Annotated[bool, typer.Option("--stdout", help="Print the file instead of writing it.")] = False,
) -> None:
    """Write the configuration file with every setting, commented."""
    if stdout:
        print(template(), end="")
        return
    path = config_path()
    if path.exists() and not force:
        raise UsageError(f"{path} is there already; edit it, or overwrite it with --force")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(template(), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} can't be written: {error}; name another place in PIE_EDGE_CONFIG") from None
    print(path)


@app.command("show")
@reported
def show(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False) -> None:
    """Show every setting in force, and where it was set."""
    configuration = load()
    if as_json:
        print(json.dumps(_as_object(configuration), ensure_ascii=False, indent=2))
        return
    there = "" if configuration.path.exists() else " (not there: `pie-edge config init` writes it)"
    print(f"# {configuration.path}{there}")
    width = max(len(name) for name in KEYS)
    for name, key in KEYS.items():
        origin = configuration.origins[name]
        print(f"{name:<{width}} = {key.kind.write(configuration.value(name)):<16} # {origin}")


def _as_object(configuration: Configuration) -> dict[str, object]:
    settings = {
        name: {"value": _shown(configuration, name), "origin": origin} for name, origin in configuration.origins.items()
    }
    return {"path": str(configuration.path), "settings": settings}


def _shown(configuration: Configuration, name: str) -> object:
    value = configuration.value(name)
    return [HIDDEN for _ in value] if name == "serve.api_keys" else value
