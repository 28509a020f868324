"""What MLX would run on: the GPU of a Mac with Apple silicon; elsewhere the processor, which shows that things work."""

from __future__ import annotations

import importlib
import importlib.util
import platform
import sys
from pathlib import Path
from typing import Any

from pie_edge import remedies
from pie_edge.backend import Finding
from pie_edge.backends.shared.host import processor

_MACOS = 14
"""The oldest that MLX's packages are for."""


def probe(system: str = sys.platform, machine: str | None = None, macos: str | None = None) -> Finding:
    if system not in ("darwin", "linux"):
        return Finding(
            (), "Metal is macOS's, and MLX runs on macOS and Linux alone", "use --backend vulkan, wgpu or cpu"
        )
    if system == "darwin" and (machine or platform.machine()) != "arm64":
        return Finding((), "MLX needs Apple silicon", "use --backend wgpu or cpu")
    if system == "darwin" and 0 < int((macos or platform.mac_ver()[0]).partition(".")[0] or 0) < _MACOS:
        return Finding((), f"MLX needs macOS {_MACOS} or newer", "use --backend wgpu or cpu")
    if not _is_installed():
        return Finding((), "MLX is not installed", remedies.install("metal"))
    if system == "linux":
        return Finding((on_processor(),), software=True)
    return broken() or _gpu()


def _gpu() -> Finding:
    try:
        if not _mlx().metal.is_available():
            return Finding((), "MLX finds no Metal device", "run outside a virtual machine, on macOS 14 or newer")
        return Finding((gpu_name(),))
    except RuntimeError as error:
        return Finding((), f"MLX can't use its Metal device: {error}", "restart the Mac, or use --backend wgpu or cpu")


def broken() -> Finding | None:
    """What is wrong with MLX's packages, if they can't be loaded though they are there. Loads them."""
    try:
        _mlx()
    except (ImportError, OSError, RuntimeError) as error:
        again = f"`pip uninstall mlx mlx-metal mlx-cpu`, then {remedies.install('metal')}"
        return Finding((), f"MLX is installed, but can't be loaded: {type(error).__name__}: {error}", again)
    return None


def _mlx() -> Any:
    return importlib.import_module("mlx.core")


def on_processor() -> str:
    """What MLX's CPU device is called."""
    return f"MLX on the processor, {processor()}"


def gpu_name() -> str:
    return str(_mlx().device_info().get("device_name", "Apple GPU"))


def _is_installed() -> bool:
    """Not imported on the way to another backend: that takes as long as the rest of a start. On Linux the package is nothing
    without its library, which comes apart."""
    found = importlib.util.find_spec("mlx")
    if found is None or found.submodule_search_locations is None:
        return False
    folders = [Path(folder) for folder in found.submodule_search_locations]
    return any(any((folder / "lib").glob("libmlx.*")) for folder in folders)
