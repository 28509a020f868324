"""What NVIDIA's driver has to offer here, asked through ctypes: no package is needed to look."""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from collections.abc import Callable
from typing import Any

from pie_edge import remedies
from pie_edge.backend import Finding
from pie_edge.backends.cuda.api import LIBRARY, REMEDY, REQUIRED, device_names, too_old, version_of

EMULATION = "SIMT CPU emulation"
"""What the stand-in driver of the tests calls its device."""


def probe(open_library: Callable[[str], Any] = ctypes.CDLL) -> Finding:
    if sys.platform == "darwin":
        return Finding((), "there is no CUDA on macOS")
    try:
        driver = open_library(LIBRARY)
    except OSError:
        return Finding((), f"no NVIDIA driver ({LIBRARY} was not found)", REMEDY)
    version = version_of(driver)
    if version is None:
        return Finding((), "the NVIDIA driver doesn't tell its version", REMEDY)
    if version < REQUIRED:
        return Finding((), too_old(version), REMEDY)
    if status := driver.cuInit(0):
        return Finding((), f"the NVIDIA driver doesn't start (cuInit returned {status})", "check nvidia-smi")
    devices = tuple(device_names(driver))
    if not devices:
        return Finding((), "the NVIDIA driver sees no device", "check nvidia-smi")
    if not has_compiler():
        return Finding((), "NVRTC, which compiles the kernels, is not installed", remedies.install("cuda"))
    return Finding(devices, software=all(name.startswith(EMULATION) for name in devices))


def has_compiler() -> bool:
    """Whether the packages are there that kernels are compiled with: they aren't loaded."""
    try:
        return importlib.util.find_spec("cuda.bindings.nvrtc") is not None
    except ImportError:
        return False
