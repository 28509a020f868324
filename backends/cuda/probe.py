"""What NVIDIA's driver has to offer here, asked through ctypes: no package is needed to look."""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from collections.abc import Callable
from typing import Any

from pie_edge import remedies
from pie_edge.backend import Finding
from pie_edge.backends.cuda.api import LIBRARY, REMEDY, REQUIRED, too_old, version_of
from pie_edge.backends.cuda.cards import cards

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
    found = cards(driver)
    usable = [card.name for card in found if not card.refusal]
    if not found:
        return Finding((), "the NVIDIA driver sees no device", "check nvidia-smi")
    if not usable:
        return Finding((), "; ".join(f"{card.name} {card.refusal}" for card in found), found[0].remedy)
    if not has_compiler():
        return Finding((), "NVRTC, which compiles the kernels, is not installed", remedies.install("cuda"))
    return Finding(
        tuple(card.name for card in found),
        software=all(name.startswith(EMULATION) for name in usable),
        refused={card.name: f"{card.name} {card.refusal}; {card.remedy}" for card in found if card.refusal},
    )


def has_compiler() -> bool:
    """Whether the packages are there that kernels are compiled with: they aren't loaded."""
    try:
        return importlib.util.find_spec("cuda.bindings.nvrtc") is not None
    except ImportError:
        return False
