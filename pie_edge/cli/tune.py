"""``pie-edge tune``: times the variants of a backend's hot kernels on this machine, and keeps the fastest for later loads."""

from __future__ import annotations

import importlib
from typing import Annotated

import typer

from pie_edge.backend import Stop, Stopped
from pie_edge.backend_choice import choose, has_variants
from pie_edge.cli import interrupts
from pie_edge.cli.outcome import reported
from pie_edge.config import load
from pie_edge.errors import UsageError
from pie_edge.paths import cache_folder


@reported
def tune(
    backend: Annotated[
        str | None, typer.Option(help="Backend to tune; auto takes the one that `run` would. [default: the setting]")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Its device, by number or part of its name. [default: the setting]")
    ] = None,
) -> None:
    """Time the few variants of each hot kernel on the device, and keep the fastest."""
    settings = load({"backend": backend, "device": device}).settings
    choice = choose(settings.backend, settings.device)
    if not has_variants(choice.backend):
        raise UsageError(f"backend {choice.backend} has no variants to choose from; nothing is to be tuned")
    module = importlib.import_module(f"pie_edge.backends.{choice.backend}.tune")
    stop = Stop()
    # An exception in the middle of a driver's call back to Python would be lost, and the device waited for in vain.
    interrupts.once(stop.ask)
    try:
        for one in choice.devices:
            print(f"tuning {choice.backend} ({one})")
            module.tune_device(one, cache_folder(), print, stop)
    except Stopped:
        raise KeyboardInterrupt from None
