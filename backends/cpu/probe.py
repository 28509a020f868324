"""The processor, which is always there."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

from pie_edge.backend import Finding


def probe() -> Finding:
    return Finding((_name() or f"{platform.machine()} processor",))


def _name() -> str:
    if sys.platform == "darwin":
        asked = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    if sys.platform == "win32":
        return platform.processor()
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
            # ARM kernels give no model name.
            return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    except OSError:
        return ""
