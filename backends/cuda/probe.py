"""What NVIDIA's driver has to offer here, asked through ctypes: no package is needed to look."""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from collections.abc import Callable
from typing import Any

from pie_edge.backend import Finding
from pie_edge.backends.shared.host import unique

DRIVER_API = 13_000
"""CUDA 13.0, which driver branch r580 is the first to serve."""
REMEDY = "install NVIDIA's driver, branch r580 or newer"
EMULATION = "SIMT CPU emulation"
"""What the stand-in driver of the tests calls its device."""


def probe(open_library: Callable[[str], Any] = ctypes.CDLL) -> Finding:
    if sys.platform == "darwin":
        return Finding((), "there is no CUDA on macOS")
    library = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        driver = open_library(library)
    except OSError:
        return Finding((), f"no NVIDIA driver ({library} was not found)", REMEDY)
    version = ctypes.c_int()
    if driver.cuDriverGetVersion(ctypes.byref(version)) != 0:
        return Finding((), "the NVIDIA driver doesn't tell its version", REMEDY)
    if version.value < DRIVER_API:
        served = f"{version.value // 1000}.{version.value % 1000 // 10}"
        return Finding((), f"the NVIDIA driver serves CUDA {served}, and 13.0 is needed", REMEDY)
    if status := driver.cuInit(0):
        return Finding((), f"the NVIDIA driver doesn't start (cuInit returned {status})", "check nvidia-smi")
    devices = _devices(driver)
    if not devices:
        return Finding((), "the NVIDIA driver sees no device", "check nvidia-smi")
    if not has_compiler():
        return Finding((), "NVRTC, which compiles the kernels, is not installed", "pip install 'pie-edge[cuda]'")
    return Finding(devices, software=all(name.startswith(EMULATION) for name in devices))


def has_compiler() -> bool:
    """Whether the packages are there that kernels are compiled with: they aren't loaded."""
    try:
        return importlib.util.find_spec("cuda.bindings.nvrtc") is not None
    except ImportError:
        return False


def _devices(driver: Any) -> tuple[str, ...]:
    count, handle, name = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(256)
    if driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return ()
    names = []
    for ordinal in range(count.value):
        if driver.cuDeviceGet(ctypes.byref(handle), ordinal) == 0:
            driver.cuDeviceGetName(name, len(name), handle)
            names.append(name.value.decode("utf-8", "replace"))
    return tuple(unique(names))
