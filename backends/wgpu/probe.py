"""Which adapters wgpu-native sees, if it is installed."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Set

from pie_edge import remedies
from pie_edge.backend import Finding

REMEDY = "install a Vulkan, Metal, Direct3D 12 or OpenGL driver"


def probe() -> Finding:
    if importlib.util.find_spec("wgpu") is None:
        return Finding((), "wgpu is not installed", remedies.install("wgpu"))
    try:
        from pie_edge.backends.wgpu.device import survey

        found = survey()
    except Exception as error:  # wgpu-native raises classes of its own, and OSError where its library doesn't load
        return Finding((), f"wgpu doesn't start: {error}", REMEDY)
    hardware = tuple(facts.name for facts in found if not facts.software)
    software = tuple(facts.name for facts in found if facts.software)
    if not found:
        return Finding((), "wgpu finds no adapter", REMEDY)
    apis = {facts.api for facts in found}
    spare = software if hardware else ()
    return Finding(hardware or software, software=not hardware, spare=spare, unseen=_unseen(apis))


def _unseen(apis: Set[str]) -> str:
    """Why OpenGL's adapters aren't here, if they aren't, and what brings them."""
    if "OpenGL" in apis:
        return ""
    told = f"OpenGL is looked at only where there is no other API, and here is {', '.join(sorted(apis))}"
    hidden = f"; hide its drivers with VK_DRIVER_FILES={os.devnull} to use OpenGL" if apis == {"Vulkan"} else ""
    return told + hidden
