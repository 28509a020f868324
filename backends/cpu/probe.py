"""What the cpu backend would run on."""

from __future__ import annotations

import importlib.util
import os
import sys

from pie_edge.backend import Finding
from pie_edge.backends.cpu.device import device_name


def probe() -> Finding:
    if importlib.util.find_spec("wasmtime") is None:
        return Finding(
            (), "the package wasmtime isn't installed", "install pie-edge again: wasmtime is one of its dependencies"
        )
    if sys.maxsize < 1 << 32:
        return Finding((), "this Python is a 32-bit one", "use a 64-bit Python")
    return Finding((device_name(os.cpu_count() or 1),))
