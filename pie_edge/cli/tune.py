"""``pie-edge tune``: times the variants of a backend's hot kernels on this machine, and keeps the fastest for later loads."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Annotated

import typer

from pie_edge.backend_choice import choose
from pie_edge.cli.outcome import reported
from pie_edge.errors import UsageError
from pie_edge.paths import cache_folder


@reported
def tune(
    backend: Annotated[str, typer.Option(help="Backend to tune; auto takes the one that `run` would.")] = "auto",
    device: Annotated[str, typer.Option(help="Its device, by number or part of its name.")] = "",
) -> None:
    """Time the few variants of each hot kernel on the device, and keep the fastest."""
    choice = choose(backend, device)
    name = f"pie_edge.backends.{choice.backend}.tune"
    if importlib.util.find_spec(name) is None:
        raise UsageError(f"backend {choice.backend} has no variants to choose from; nothing is to be tuned")
    print(f"tuning {choice.backend} ({choice.device})")
    importlib.import_module(name).tune_device(choice.device, cache_folder(), print)
