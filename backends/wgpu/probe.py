"""Which adapters wgpu-native sees, if it is installed."""

from __future__ import annotations

import importlib.util

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
    return Finding(hardware or software, software=not hardware, spare=software if hardware else ())
