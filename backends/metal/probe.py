"""Whether this is a Mac whose GPU MLX can use."""

from __future__ import annotations

import importlib
import importlib.util
import platform
import sys

from pie_edge import remedies
from pie_edge.backend import Finding


def probe(system: str = sys.platform, machine: str | None = None) -> Finding:
    if system != "darwin":
        return Finding((), "Metal is macOS's")
    if (machine or platform.machine()) != "arm64":
        return Finding((), "MLX needs Apple silicon")
    if importlib.util.find_spec("mlx") is None:
        return Finding((), "MLX is not installed", remedies.install("metal"))
    metal = importlib.import_module("mlx.core").metal
    if not metal.is_available():
        return Finding((), "MLX finds no Metal device", "run outside a virtual machine, on macOS 14 or newer")
    return Finding((str(metal.device_info().get("device_name", "Apple GPU")),))
